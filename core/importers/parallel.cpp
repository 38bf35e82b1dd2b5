#include "importers/parallel.h"

#include <algorithm>

#include "config/reader.h"

namespace oometer::importers {

using nlohmann::json;

namespace {

/// FSDP shares nothing on one GPU.
constexpr std::int64_t kFewestOfFsdp = 2;

std::string distributed_type_of(const json& accelerate) {
  const std::string type = member_text(accelerate, "distributed_type");
  return type.empty() ? "NO" : type;
}

void note(Context& context, const std::string& key, const std::string& pointer, const json& value) {
  context.ledger.taken.push_back({context.launch.file, key, pointer, value, context.launch.file.empty(), ""});
}

/// DeepSpeed's engine keeps weights in half precision and has no autocast (transformers/integrations/deepspeed.py fills
/// in "auto" from bf16 and fp16, as here; deepspeed/runtime/engine.py: _configure_distributed_model).
void take_engine_precision(Context& context, json& config) {
  json& precision = context.ledger.job["training"]["precision"];
  std::string autocast;
  if (precision.is_object()) autocast = member_text(precision, "autocast");
  if (precision.is_string() && precision.get<std::string>().starts_with("amp-"))
    autocast = precision.get<std::string>().substr(4);
  std::string engine;
  for (const char* type : {"bf16", "fp16"}) {
    if (!config.is_object() || !config.contains(type) || !config[type].is_object()) continue;
    const json enabled = member(config[type], "enabled");
    if (enabled == true || (enabled == "auto" && autocast == type)) engine = type;
  }
  const bool says = config.is_object() && (config.contains("bf16") || config.contains("fp16"));
  if (engine.empty() && !says) engine = autocast;  // accelerate writes the block itself (DeepSpeedPlugin)
  for (const std::string type : {"bf16", "fp16"})
    if (const json::json_pointer enabled("/" + type + "/enabled");
        config.contains(enabled) && config[enabled] == "auto")
      config[enabled] = engine == type;
  if (engine.empty()) return;
  precision = engine;
  for (Taken& taken : context.ledger.taken) {
    if (!taken.pointer.starts_with("/training/precision")) continue;
    taken.pointer = "/training/precision";
    taken.value = engine;
  }
  // The engine converts adapters as it does all weights.
  json& training = context.ledger.job["training"];
  if (training.contains("lora")) training["lora"]["autocast_adapter_dtype"] = false;
}

void take_deepspeed(Context& context, Keys& keys) {
  json config = context.named_file(keys, "deepspeed");
  if (!config.is_object()) return;
  take_engine_precision(context, config);
  keys.take("deepspeed", "/parallel/ds_config", config);
  context.ledger.put("/parallel/strategy", "deepspeed");
}

/// The file of accelerate, with the one of DeepSpeed that it names; what only its own commands take is left out.
void take_accelerate(Context& context) {
  Ledger& ledger = context.ledger;
  const Launch& launch = context.launch;
  json config = launch.accelerate;
  const std::string type = distributed_type_of(config);
  if (config.contains("deepspeed_config") && config["deepspeed_config"].is_object() && type == "DEEPSPEED") {
    json& deepspeed = config["deepspeed_config"];
    if (const json file = member(deepspeed, "deepspeed_config_file"); file.is_string()) {
      const SourceFile* found = context.find_file(file.get<std::string>());
      if (found != nullptr && found->content.is_object()) {
        deepspeed["deepspeed_config_file"] = found->content;
      } else {
        ledger.missing.push_back({"file", file.get<std::string>(), launch.accelerate_file, "deepspeed_config_file",
                                  "the file that it names decides memory: give it too"});
        return;
      }
    }
    json inner = member(deepspeed, "deepspeed_config_file");
    take_engine_precision(context, inner);
    if (inner.is_object()) deepspeed["deepspeed_config_file"] = std::move(inner);
  }
  // What it says of precision is in training.precision (autocast_of), and of accumulation in the arguments.
  config.erase("mixed_precision");
  if (config.contains("deepspeed_config") && config["deepspeed_config"].is_object())
    config["deepspeed_config"].erase("gradient_accumulation_steps");
  if (launch.gpus > 0) config["num_processes"] = launch.gpus;
  const json precision = member(member(ledger.job, "training"), "precision");
  if (type == "FSDP" && precision.is_string() && precision.get<std::string>().starts_with("amp-"))
    config["mixed_precision"] = precision.get<std::string>().substr(4);
  ledger.put("/parallel/accelerate_config", config);
  ledger.taken.push_back({launch.accelerate_file, "distributed_type", "/parallel/accelerate_config", type, false, ""});
}

/// Options of FSDP without their prefix: those that job/accelerate.h reads, and those that change no memory.
constexpr std::string_view kFsdpKeys =
    "version offload_params sharding_strategy reshard_after_forward backward_prefetch forward_prefetch use_orig_params "
    "sync_module_states auto_wrap_policy transformer_layer_cls_to_wrap";
constexpr std::string_view kNoMatter =
    "limit_all_gathers state_dict_type final_state_dict_type cpu_ram_efficient_loading cpu_offload_pin_memory "
    "min_num_params";

/// TrainingArguments.fsdp and fsdp_config, in accelerate's words (training_args.py: _process_fsdp_args).
void take_fsdp(Context& context, Keys& keys) {
  const json given = keys.value("fsdp");
  std::string words = given.is_string() ? given.get<std::string>() : "";
  if (given.is_array())
    for (const json& one : given)
      if (one.is_string()) words += one.get<std::string>() + " ";
  const json file = context.named_file(keys, "fsdp_config");
  if (keys.has("fsdp_config") && !file.is_object()) return;
  json fsdp = json::object();
  std::int64_t version = 1;
  if (file.is_object())
    for (const auto& [name, value] : file.items()) {
      std::string key = name.starts_with("fsdp_") ? name.substr(5) : name;
      if (key == "version" && value.is_number_integer()) version = value.get<std::int64_t>();
      if (key == "transformer_layer_cls_to_wrap" && value.is_array()) {
        std::string classes;
        for (const json& one : value)
          if (one.is_string()) classes += (classes.empty() ? "" : ",") + one.get<std::string>();
        fsdp["fsdp_" + key] = classes;
      } else if (is_word_of(key, kNoMatter) || key.starts_with("xla")) {
        continue;
      } else if (key == "activation_checkpointing") {
        if (value == true) context.ledger.put("/training/activation_checkpointing", "non-reentrant");
      } else if (is_word_of(key, kFsdpKeys)) {
        fsdp["fsdp_" + key] = value;
      } else {
        context.ledger.unmodelled.push_back(
            {keys.file(), "fsdp_config." + name, value, "an option of FSDP that is not known", Effect::either, {}});
      }
    }
  if (const json said = keys.value("fsdp_version"); said.is_number_integer()) version = said.get<std::int64_t>();
  if (keys.has("fsdp_transformer_layer_cls_to_wrap"))
    fsdp["fsdp_transformer_layer_cls_to_wrap"] = keys.text("fsdp_transformer_layer_cls_to_wrap");
  fsdp["fsdp_version"] = version;
  if (version == 1 && !fsdp.contains("fsdp_sharding_strategy"))
    fsdp["fsdp_sharding_strategy"] = is_word_of("shard_grad_op", words) ? "SHARD_GRAD_OP"
                                     : is_word_of("no_shard", words)    ? "NO_SHARD"
                                                                        : "FULL_SHARD";
  // TrainingArguments' own default (_process_fsdp_args).
  if (version == 1 && !fsdp.contains("fsdp_backward_prefetch")) fsdp["fsdp_backward_prefetch"] = "NO_PREFETCH";
  if (is_word_of("offload", words)) fsdp["fsdp_offload_params"] = true;
  if (!is_word_of("auto_wrap", words) && version == 1 && !fsdp.contains("fsdp_transformer_layer_cls_to_wrap") &&
      !fsdp.contains("fsdp_auto_wrap_policy"))
    fsdp["fsdp_auto_wrap_policy"] = "NO_WRAP";
  json config = {{"distributed_type", "FSDP"},
                 {"num_processes", context.launch.gpus > 0 ? context.launch.gpus : kFewestOfFsdp},
                 {"fsdp_config", std::move(fsdp)}};
  const json precision = member(member(context.ledger.job, "training"), "precision");
  if (precision.is_string() && precision.get<std::string>().starts_with("amp-"))
    config["mixed_precision"] = precision.get<std::string>().substr(4);
  keys.take(keys.has("fsdp") ? "fsdp" : "fsdp_config", "/parallel/accelerate_config", config);
}

}  // namespace

void take_gpus(Context& context, const char* strategy) {
  const Launch& launch = context.launch;
  if (launch.gpus <= 1) {
    if (*strategy != '\0' && launch.gpus == 0)
      context.ledger.missing.push_back({"gpus", "", "", "",
                                        std::string("on how many GPUs it runs is not said: taken as ") +
                                            (std::string_view(strategy) == "fsdp" ? "two" : "one") +
                                            ", which needs the most (--gpus)"});
    return;
  }
  if (*strategy != '\0') context.ledger.put("/parallel/strategy", strategy);
  context.ledger.put("/parallel/data", launch.gpus);
  note(context, launch.key, "/parallel/data", launch.gpus);
}

void take_parallel(Context& context, Keys& keys) {
  const json fsdp = keys.value("fsdp");
  const json config = keys.value("fsdp_config");
  const bool is_config_enough = context.shards_by_fsdp_config && config.is_object() && !config.empty();
  const bool has_fsdp = (fsdp.is_string() && fsdp != "" && fsdp != "false") || (fsdp.is_array() && !fsdp.empty()) ||
                        fsdp == true || is_config_enough;
  if (context.launch.accelerate.is_object()) {
    const std::string type = distributed_type_of(context.launch.accelerate);
    if (keys.has("deepspeed") && type != "NO" && type != "DEEPSPEED")
      keys.refuse("deepspeed", "accelerate's file says distributed_type " + type + ": leave one of them out");
    if (!keys.has("deepspeed") && type != "NO") {
      keys.ignore("fsdp");
      keys.ignore("fsdp_config");
      take_accelerate(context);
      if (context.launch.gpus == 0 && !context.launch.accelerate.contains("num_processes")) take_gpus(context, "ddp");
      return;
    }
  }
  if (keys.has("deepspeed")) {
    take_deepspeed(context, keys);
    return take_gpus(context, "deepspeed");
  }
  keys.mark("deepspeed");
  if (has_fsdp) {
    take_fsdp(context, keys);
    if (context.launch.gpus == 0) take_gpus(context, "fsdp");
    return;
  }
  keys.ignore("fsdp");
  keys.ignore("fsdp_config");
  if (context.launch.gpus > 1) take_gpus(context, "ddp");
}

}  // namespace oometer::importers
