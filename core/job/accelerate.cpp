#include "job/accelerate.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "config/reader.h"
#include "job/read.h"

namespace oometer {

using nlohmann::json;

namespace {

constexpr const char* kConfig = "/parallel/accelerate_config";

/// DeepSpeedPlugin.__post_init__, without a deepspeed_config_file; `steps` of accumulation, where it says so.
json deepspeed_of(ConfigReader& reader, std::int64_t& steps) {
  if (const json* file = reader.find("deepspeed_config_file"); file && file->is_object()) return *file;
  if (reader.has("deepspeed_config_file"))
    reader.fail_found("deepspeed_config_file", "missing", "expected that file's content, in place of its name");
  json config = json::object();
  json& zero = config["zero_optimization"];
  const std::int64_t stage = reader.integer("zero_stage", 2, {0, 3});
  zero["stage"] = stage;
  constexpr std::array<std::pair<const char*, const char*>, 2> kOffloads = {
      {{"offload_optimizer", "offload_optimizer_device"}, {"offload_param", "offload_param_device"}}};
  for (const auto& [key, device] : kOffloads)
    if (reader.has(device)) zero[key]["device"] = *reader.find(device);
  if (reader.has("gradient_clipping")) config["gradient_clipping"] = *reader.find("gradient_clipping");
  if (!reader.is_auto("gradient_accumulation_steps") && reader.has("gradient_accumulation_steps")) {
    steps = reader.integer("gradient_accumulation_steps", 1);
    config["gradient_accumulation_steps"] = steps;
  }
  if (stage == 3 && !reader.boolean("zero3_init_flag", true))
    reader.fail_found("zero3_init_flag", "not-modelled", kNotYet);
  if (stage == 3 && reader.boolean("zero3_save_16bit_model", false))
    zero["stage3_gather_16bit_weights_on_model_save"] = true;
  reader.ignore({"zero3_init_flag", "zero3_save_16bit_model", "offload_optimizer_nvme_path", "offload_param_nvme_path",
                 "deepspeed_hostfile", "deepspeed_exclusion_filter", "deepspeed_inclusion_filter",
                 "deepspeed_multinode_launcher", "deepspeed_moe_layer_cls_names"});
  reader.finish();
  return config;
}

/// A member that is called otherwise in the job; `version` 0: of both FSDPs.
struct Renamed {
  const char* theirs;
  const char* ours;
  int version;
};
constexpr Renamed kFsdp[] = {{"fsdp_offload_params", "cpu_offload", 0},
                             {"fsdp_sharding_strategy", "sharding", 1},
                             {"fsdp_reshard_after_forward", "sharding", 1},  // its name since accelerate 1.6
                             {"fsdp_reshard_after_forward", "reshard_after_forward", 2},
                             {"fsdp_backward_prefetch", "backward_prefetch", 1},
                             {"fsdp_forward_prefetch", "forward_prefetch", 1},
                             {"fsdp_use_orig_params", "use_orig_params", 1},
                             {"fsdp_sync_module_states", "sync_module_states", 1}};

/// FullyShardedDataParallelPlugin's fields, with the defaults of `accelerate launch`.
json fsdp_of(ConfigReader& reader, std::int64_t version, const std::string& precision) {
  json fsdp = json::object();
  if (precision != "no") {
    fsdp["param_dtype"] = fsdp["reduce_dtype"] = precision;
    if (version == 1) fsdp["buffer_dtype"] = precision;
  }
  if (version == 1) fsdp["sync_module_states"] = true;
  for (const Renamed& key : kFsdp) {
    const bool is_given = reader.has(key.theirs);
    if (is_given && (key.version == 0 || key.version == version)) fsdp[key.ours] = *reader.find(key.theirs);
  }
  const std::string policy = reader.text("fsdp_auto_wrap_policy", "TRANSFORMER_BASED_WRAP");
  const bool is_alone = policy == "NO_WRAP";
  if (!is_alone && policy != "TRANSFORMER_BASED_WRAP")
    reader.fail_found("fsdp_auto_wrap_policy", "not-modelled", "expected TRANSFORMER_BASED_WRAP or NO_WRAP");
  std::string names = reader.text("fsdp_transformer_layer_cls_to_wrap", "");
  if (is_alone || !names.empty()) fsdp["wrap"] = json::array();
  while (!names.empty()) {
    const std::size_t end = std::min(names.find(','), names.size());
    fsdp["wrap"].push_back(names.substr(0, end));
    names.erase(0, end + 1);
    while (names.starts_with(' ')) names.erase(0, 1);
  }
  if (reader.boolean("fsdp_activation_checkpointing", false))
    reader.fail_found("fsdp_activation_checkpointing", "not-modelled", kNotYet);
  reader.ignore({"fsdp_version", "fsdp_state_dict_type", "fsdp_cpu_ram_efficient_loading", "fsdp_min_num_params"});
  reader.finish();
  return fsdp;
}

/// TrainingArguments reads ACCELERATE_MIXED_PRECISION, where neither bf16 nor fp16 says more (training_args.py,
/// __post_init__); `accelerate launch` sets it.
void give_to_trainer(json& training, const std::string& mixed_precision) {
  json& loop = training["loop"];
  if (loop.is_string()) loop = {{"name", loop}};
  if (!loop.is_object()) return;
  const json own = training.value("precision", json());
  const bool says_autocast = own.is_object() ? own.contains("autocast") : own == "amp-bf16" || own == "amp-fp16";
  json& args = loop["args"];
  if (args.is_null()) args = json::object();
  if (says_autocast || !args.is_object() || args.contains("bf16") || args.contains("fp16")) return;
  args[mixed_precision] = true;
}

}  // namespace

std::optional<Error> spell_out_accelerate(json& job) {
  Findings findings;
  ConfigReader whole(&job, "", Mode::strict, findings);
  ConfigReader beside = whole.object("parallel"), trains = whole.object("training");
  ConfigReader config = beside.object("accelerate_config");
  const json given = job["parallel"].value("fsdp", json());
  const bool is_preparer = given.is_object() && given.size() == 1 && given.contains("preparer");  // which it cannot say
  for (const char* key : {"strategy", "zero_stage", "ds_config", "ddp", "fsdp"})
    if (beside.has(key) && !(is_preparer && key == std::string_view("fsdp")))
      beside.fail_found(key, "inconsistent", "the accelerate_config says what is run: leave one out");
  const std::string type = config.text("distributed_type", "NO");
  const bool is_deepspeed = type == "DEEPSPEED", is_fsdp = type == "FSDP", is_ddp = type == "MULTI_GPU";
  if (!is_deepspeed && !is_fsdp && !is_ddp && type != "NO")
    config.fail_found("distributed_type", "not-modelled", "expected NO, MULTI_GPU, DEEPSPEED or FSDP");
  const std::int64_t processes = config.integer("num_processes", 1, {1, 1 << 16});
  std::string precision = config.text("mixed_precision", "no");
  bool trains_in_fp8 = false;
  if (precision != "no" && precision != "bf16" && precision != "fp16" && precision != "fp8")
    config.fail_found("mixed_precision", "unknown-value", "no, bf16, fp16 or fp8");
  if (precision == "fp8") {
    trains_in_fp8 = true;
    precision = "bf16";
  }
  for (const char* key : {"megatron_lm_config", "parallelism_config", "use_cpu"})
    if (const json* value = config.find(key); value && !value->empty() && !(value->is_boolean() && !value->get<bool>()))
      config.fail_found(key, "not-modelled", kNotYet);
  config.ignore({"compute_environment",
                 "debug",
                 "downcast_bf16",
                 "fp8_config",
                 "enable_cpu_affinity",
                 "gpu_ids",
                 "machine_rank",
                 "main_process_ip",
                 "main_process_port",
                 "main_training_function",
                 "mpirun_config",
                 "num_machines",
                 "rdzv_backend",
                 "same_network",
                 "tpu_env",
                 "tpu_name",
                 "tpu_zone",
                 "tpu_use_cluster",
                 "tpu_use_sudo",
                 "ipex_config"});
  ConfigReader dynamo = config.object("dynamo_config");  // TorchDynamoPlugin: the keys may have a prefix
  std::string backend = dynamo.text("dynamo_backend", "NO");
  if (backend == "NO") backend = dynamo.text("backend", "NO");
  const bool compiles = backend != "NO" && backend != "no";
  ConfigReader deepspeed = config.object("deepspeed_config"), fsdp = config.object("fsdp_config");
  const char* strategy = is_ddp && processes > 1 ? "ddp" : "none";
  const char* options = nullptr;
  json said;
  std::int64_t steps = 0;
  if (is_deepspeed) {
    strategy = "deepspeed";
    options = "ds_config";
    said = deepspeed_of(deepspeed, steps);
  } else if (is_fsdp) {
    const std::int64_t version = fsdp.integer("fsdp_version", 1, {1, 2});
    strategy = version == 1 ? "fsdp1" : "fsdp2";
    options = "fsdp";
    said = fsdp_of(fsdp, version, precision);
  }
  config.finish();
  // What the job says of it too has to be the same. DeepSpeed's engine holds the weights in that precision; elsewhere
  // the Accelerator wraps the forward in autocast.
  constexpr const char* kDiffers = "expected what the accelerate_config says, or nothing";
  if (beside.has("data") && beside.integer("data", 1) != processes) beside.fail_found("data", "inconsistent", kDiffers);
  const json* loop = trains.find("loop");
  const bool is_step =
      loop == nullptr || *loop == "step" || (loop->is_object() && loop->value("name", json()) == "step");
  const std::string of_trainer = is_step || is_deepspeed ? "no" : std::exchange(precision, "no");
  if (precision != "no" && !is_deepspeed) precision.insert(0, "amp-");
  const bool is_said = trains.has("precision");
  if (is_said && precision != "no" && trains.text("precision", "") != precision)
    trains.fail_found("precision", "inconsistent", kDiffers);
  const bool counts = trains.has("gradient_accumulation_steps");
  if (findings.error) return findings.error;
  if (of_trainer != "no") give_to_trainer(job["training"], of_trainer);
  if (compiles) job["training"]["torch_compile"] = true;
  if (trains_in_fp8) job["training"]["fp8"] = true;
  json& parallel = job["parallel"];
  parallel.erase("accelerate_config");
  parallel["strategy"] = strategy;
  parallel["data"] = processes;
  if (options) parallel[options] = std::move(said);
  if (is_preparer) parallel["fsdp"].update(given);
  if (precision != "no" && !is_said) job["training"]["precision"] = precision;
  if (steps > 0 && !counts) job["training"]["gradient_accumulation_steps"] = steps;
  return std::nullopt;
}

std::string accelerate_pointer(const std::string& pointer) {
  constexpr std::array<std::pair<const char*, const char*>, 3> kPlaces = {
      {{"/parallel/ds_config", "/deepspeed_config"},
       {"/parallel/fsdp", "/fsdp_config"},
       {"/parallel/strategy", "/distributed_type"}}};
  for (const auto& [ours, theirs] : kPlaces)
    if (pointer.starts_with(ours)) return std::string(kConfig) + theirs;
  return pointer;
}

}  // namespace oometer
