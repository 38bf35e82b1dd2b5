#include "importers/transformers/training_arguments.h"

#include <string>
#include <vector>

#include "config/reader.h"
#include "job/loop.h"

namespace oometer::importers {

using nlohmann::json;

namespace {

constexpr const char* kSource = "training_args.py: TrainingArguments";
constexpr const char* kArgs = "/training/loop/args/";

constexpr Key kKeys[] = {
    {"per_device_train_batch_size", "8", kSource, "/data/micro_batch_size"},
    {"gradient_accumulation_steps", "1", kSource, "/training/gradient_accumulation_steps"},
    {"max_grad_norm", "1.0", kSource, "/training/max_grad_norm"},
    {"activation_checkpointing", "", kSource, ""},
    {"activation_checkpointing_kwargs", "", kSource, ""},
    {"gradient_checkpointing", "false", kSource, ""},
    {"gradient_checkpointing_kwargs", "", kSource, ""},
    {"bf16", "false", kSource, ""},
    {"fp16", "false", kSource, ""},
    {"optim", "\"adamw_torch_fused\"", kSource, ""},  // with torch 2.8 and later
    {"adafactor", "", kSource, ""},                   // until 5.0
    {"optim_args", "", kSource, ""},
    {"optim_target_modules", "", kSource, ""},
    {"weight_decay", "0.0", kSource, ""},
    {"use_liger_kernel", "false", kSource, ""},
    {"liger_kernel_config", "", kSource, ""},
    {"model_name_or_path", "", "from_pretrained", ""},
    {"dtype", "\"auto\"", "modeling_utils.py: from_pretrained", ""},
    {"torch_dtype", "", "modeling_utils.py: from_pretrained", ""},
    {"attn_implementation", "\"sdpa\"", "modeling_utils.py: from_pretrained", "/training/attention"},
    {"deepspeed", "", kSource, ""},
    {"fsdp", "", kSource, ""},
    {"fsdp_config", "", kSource, ""},
    {"fsdp_transformer_layer_cls_to_wrap", "", kSource, ""},  // until 5.0
    {"eval_strategy", "\"no\"", kSource, ""},
    {"evaluation_strategy", "", kSource, ""},  // its name until 4.45
    {"eval_steps", "", kSource, ""},
    {"save_strategy", "\"steps\"", kSource, ""},
    {"save_steps", "500", kSource, ""},
    {"max_steps", "-1", kSource, ""},
    {"per_device_eval_batch_size", "8", kSource, ""},
    {"label_smoothing_factor", "0.0", kSource, ""},
    {"average_tokens_across_devices", "true", kSource, ""},
    {"include_num_input_tokens_seen", "\"no\"", kSource, ""},
    {"torch_empty_cache_steps", "", kSource, ""},
    {"neftune_noise_alpha", "", kSource, ""},
    {"dataloader_num_workers", "0", kSource, "/host/data_workers"},
    {"prediction_loss_only", "false", kSource, ""},
    {"eval_accumulation_steps", "", kSource, ""},
    {"train_sampling_strategy", "\"random\"", kSource, ""},
    {"group_by_length", "", kSource, ""},  // until 5.0
    {"ddp_find_unused_parameters", "", kSource, ""},
    {"ddp_bucket_cap_mb", "", kSource, ""},
    {"ddp_broadcast_buffers", "", kSource, ""},
    {"ddp_static_graph", "", kSource, ""},
};

constexpr Gap kGaps[] = {
    {"torch_compile", "", Effect::either,
     "fused kernels keep fewer activations for backward; CUDA graphs have pools of their own"},
    {"torch_compile_backend", "", Effect::either, "it compiles the model, as torch_compile does"},
    {"torch_compile_mode", "", Effect::either, "it compiles the model, as torch_compile does"},
    {"auto_find_batch_size", "", Effect::less, "the batch is made smaller until it fits"},
    {"batch_eval_metrics", "", Effect::less, "an evaluation that keeps no logits of earlier batches"},
    {"bf16_full_eval", "", Effect::less, "weights in half precision while it evaluates"},
    {"fp16_full_eval", "", Effect::less, "weights in half precision while it evaluates"},
    {"eval_on_start", "", Effect::either, "an evaluation before the first step"},
    {"include_for_metrics", "", Effect::more, "what an evaluation keeps beside logits"},
    {"include_inputs_for_metrics", "", Effect::more, "an evaluation keeps the inputs of all batches, 8 bytes a token"},
    {"eval_use_gather_object", "", Effect::either, "how an evaluation gathers what it keeps"},
    {"eval_do_concat_batches", "true", Effect::either, "how an evaluation keeps what it predicts"},
    {"parallelism_config", "", Effect::less,
     "tensor, context or sequence parallelism: weights or activations in parts"},
    {"use_cache", "", Effect::more, "keys and values of all layers, as long as the outputs live"},
    {"use_cpu", "", Effect::less, "it runs without the GPU"},
    {"no_cuda", "", Effect::less, "it runs without the GPU"},
    {"predict_with_generate", "", Effect::more, "an evaluation generates, with a KV cache"},
    {"tp_size", "1", Effect::less, "tensor parallelism: weights in parts"},
};

/// Of earlier versions and of Seq2SeqTrainingArguments; those of today are in job/loop.h.
constexpr std::string_view kHarmless =
    "overwrite_output_dir save_safetensors fp16_backend fp16_opt_level half_precision_backend "
    "include_tokens_per_second jit_mode_eval use_ipex use_mps_device tpu_num_cores tpu_metrics_debug past_index "
    "push_to_hub_model_id push_to_hub_organization push_to_hub_token mp_parameters ray_scope fsdp_min_num_params "
    "generation_config generation_max_length generation_num_beams sortish_sampler";

constexpr Renamed kRenamed[] = {{"per_gpu_train_batch_size", "per_device_train_batch_size", "3.0"},
                                {"per_gpu_eval_batch_size", "per_device_eval_batch_size", "3.0"}};

constexpr Table kTable = {"transformers 5.23", kKeys, kGaps, kHarmless, changes_no_memory, kRenamed};

/// A switch of an interval that is no whole number of steps (a part of the run) says nothing to the loop.
void take_steps(Keys& keys, const char* name) {
  if (!keys.has(name)) return keys.mark(name);
  const json steps = keys.value(name);
  if (steps.is_number_integer() && steps > 0)
    keys.take(name, kArgs + std::string(name), steps);
  else
    keys.ignore(name);
}

/// "IntervalStrategy.STEPS" is how older versions printed what they were given.
std::string interval_of(Keys& keys, const char* name) {
  const json given = keys.value(name);
  if (given.is_boolean()) return given == true ? "yes" : "no";  // YAML's word for false
  std::string word = lower_case(keys.text(name));
  if (const std::size_t dot = word.find('.'); dot != std::string::npos) word.erase(0, dot + 1);
  return word;
}

void take_evaluation(Keys& keys) {
  const char* const key = keys.has("evaluation_strategy") ? "evaluation_strategy" : "eval_strategy";
  const std::string strategy = interval_of(keys, key);
  keys.mark("eval_strategy");
  const bool evaluates = strategy != "no" && !strategy.empty();
  if (evaluates) keys.take(key, std::string(kArgs) + "eval_strategy", strategy);
  for (const char* name : {"per_device_eval_batch_size", "prediction_loss_only", "eval_accumulation_steps"}) {
    if (evaluates && keys.has(name))
      keys.take(name, kArgs + std::string(name), keys.value(name));
    else if (evaluates && name == std::string_view("per_device_eval_batch_size"))
      keys.take(name, kArgs + std::string(name), keys.value(name));
    else
      keys.ignore(name);
  }
  if (evaluates)
    take_steps(keys, "eval_steps");
  else
    keys.ignore("eval_steps");
}

void take_saving(Keys& keys) {
  if (keys.has("save_strategy")) {
    const std::string strategy = interval_of(keys, "save_strategy");
    keys.take("save_strategy", std::string(kArgs) + "save_strategy", strategy == "best" ? "steps" : strategy);
  }
  take_steps(keys, "save_steps");
  take_steps(keys, "max_steps");
}

}  // namespace

const Table& training_arguments() { return kTable; }

Autocast autocast_of(Context& context, Keys& keys, bool is_usual) {
  const bool fp16 = keys.truth("fp16");
  const bool bf16 = keys.has("bf16") ? keys.truth("bf16") : is_usual && !fp16;
  keys.mark("bf16");
  if (bf16 && fp16) keys.refuse("fp16", "bf16 is true too, and the trainer takes one of them: leave one out");
  if (bf16) return {"bf16", "bf16"};
  if (fp16) return {"fp16", "fp16"};
  // Without either accelerate's own word counts (training_args.py: __post_init__, ACCELERATE_MIXED_PRECISION).
  const json& accelerate = context.launch.accelerate;
  const std::string said =
      accelerate.is_object() && accelerate.contains("mixed_precision") && accelerate["mixed_precision"].is_string()
          ? accelerate["mixed_precision"].get<std::string>()
          : "no";
  return {"bf16", said == "bf16" || said == "fp16" ? said : ""};
}

void take_checkpointing(Keys& keys, bool is_reentrant) {
  // The newer name goes before its alias (training_args.py: __post_init__).
  const bool is_new = keys.has("activation_checkpointing");
  const char* const key = is_new ? "activation_checkpointing" : "gradient_checkpointing";
  const char* const options_key = is_new || keys.has("activation_checkpointing_kwargs")
                                      ? "activation_checkpointing_kwargs"
                                      : "gradient_checkpointing_kwargs";
  const bool checkpoints = keys.truth(key);
  json options = keys.value(options_key);
  if (options.is_string())  // JSON in a command line
    if (const Result<json> tree = parse_json(options.get<std::string>())) options = *tree;
  if (is_new) keys.ignore("gradient_checkpointing");
  if (!checkpoints) {
    keys.take(key, "/training/activation_checkpointing", "none");
    return keys.ignore(options_key);
  }
  if (options.is_object() && options.contains("use_reentrant"))
    return keys.take(options_key, "/training/activation_checkpointing",
                     options["use_reentrant"] == true ? "reentrant" : "non-reentrant");
  keys.take(key, "/training/activation_checkpointing", is_reentrant ? "reentrant" : "non-reentrant");
}

/// The order of samples: the loop reads it where data.lengths says how long they are. Full ones are alike in any.
void take_sampling(Keys& keys) {
  constexpr const char *kStrategy = "train_sampling_strategy", *kOlder = "group_by_length";
  const bool is_older = !keys.has(kStrategy) && keys.has(kOlder);
  const char* const said = is_older ? kOlder : kStrategy;
  const std::string strategy = !is_older ? keys.text(kStrategy) : keys.truth(kOlder) ? kOlder : "random";
  keys.ignore(is_older ? kStrategy : kOlder);
  if (strategy == "random" || strategy == "sequential") return keys.ignore(said);
  if (keys.has("packing") && keys.truth("packing"))
    return keys.leave_out(said, Effect::either, "packed rows in the order of their lengths");
  keys.take(said, std::string(kArgs) + kStrategy, strategy);
}

void take_data_workers(Keys& keys) { keys.take_given("dataloader_num_workers", "/host/data_workers"); }

void take_training_arguments(Context&, Keys& keys) {
  for (const char* name : {"per_device_train_batch_size", "gradient_accumulation_steps", "max_grad_norm"})
    keys.take(name);
  if (keys.truth("adafactor") && !keys.has("optim"))
    keys.take("adafactor", std::string(kArgs) + "optim", "adafactor");
  else
    keys.take("optim", std::string(kArgs) + "optim", keys.text("optim"));
  keys.take_given("optim_args", std::string(kArgs) + "optim_args");
  keys.take_given("optim_target_modules", std::string(kArgs) + "optim_target_modules");
  keys.take_given("weight_decay", std::string(kArgs) + "weight_decay");
  if (keys.truth("use_liger_kernel")) {
    const json kernels = keys.value("liger_kernel_config");
    keys.take(kernels.is_object() ? "liger_kernel_config" : "use_liger_kernel", "/training/liger",
              kernels.is_object() ? kernels : json(true));
  } else {
    keys.ignore("use_liger_kernel");
  }
  take_data_workers(keys);
  take_evaluation(keys);
  take_saving(keys);
  take_sampling(keys);
  for (const char* name : {"label_smoothing_factor", "average_tokens_across_devices", "include_num_input_tokens_seen",
                           "torch_empty_cache_steps", "neftune_noise_alpha", "ddp_find_unused_parameters",
                           "ddp_bucket_cap_mb", "ddp_broadcast_buffers", "ddp_static_graph"})
    keys.take_given(name, kArgs + std::string(name));
}

void take_adapters(Context& context, Keys& keys) {
  if (!keys.truth("use_peft")) {
    keys.take("use_peft", "/training/stage", "full");
    if (keys.truth("load_in_4bit") || keys.truth("load_in_8bit"))
      keys.refuse(keys.truth("load_in_4bit") ? "load_in_4bit" : "load_in_8bit",
                  "quantized weights cannot be trained without adapters: set use_peft, or give a LoraConfig");
    for (const char* key : {"lora_r", "lora_alpha", "lora_dropout", "lora_target_modules", "lora_target_parameters",
                            "lora_modules_to_save", "use_rslora", "use_dora", "bnb_4bit_quant_type",
                            "use_bnb_nested_quant", "bnb_4bit_compute_dtype", "prepare_model_for_kbit_training"})
      keys.ignore(key);
    return;
  }
  keys.note("use_peft", "/training/lora");
  const auto take = [&](const char* key, const char* pointer) { keys.take(key, pointer, keys.value(key)); };
  take("lora_r", "/training/lora/rank");
  take("lora_alpha", "/training/lora/alpha");
  take("lora_dropout", "/training/lora/dropout");
  if (std::vector<std::string> targets = keys.names("lora_target_modules"); !targets.empty())
    keys.take("lora_target_modules", "/training/lora/target_modules",
              targets.size() == 1 ? json(targets[0]) : json(targets));
  if (const std::vector<std::string> parameters = keys.names("lora_target_parameters"); !parameters.empty())
    keys.take("lora_target_parameters", "/training/lora/target_parameters", parameters);
  if (const std::vector<std::string> saved = keys.names("lora_modules_to_save"); !saved.empty())
    keys.take("lora_modules_to_save", "/training/lora/modules_to_save", saved);
  if (keys.truth("use_dora")) keys.take("use_dora", "/training/lora/use_dora", true);
  if (keys.truth("use_rslora")) keys.take("use_rslora", "/training/lora/use_rslora", true);
  constexpr const char* kPrepares = "prepare_model_for_kbit_training";
  if (!keys.truth("load_in_4bit")) {
    for (const char* key :
         {"bnb_4bit_quant_type", "use_bnb_nested_quant", "bnb_4bit_quant_storage", "bnb_4bit_compute_dtype"})
      keys.ignore(key);
    if (!keys.truth("load_in_8bit")) return keys.ignore(kPrepares);
    keys.take("load_in_8bit", "/training/quantization/load_in_8bit", true);
  } else {
    keys.take("load_in_4bit", "/training/quantization/load_in_4bit", true);
    take("bnb_4bit_quant_type", "/training/quantization/bnb_4bit_quant_type");
    take("use_bnb_nested_quant", "/training/quantization/bnb_4bit_use_double_quant");
    keys.ignore("bnb_4bit_quant_storage");  // the same bytes, whatever they are called
    // TRL computes in the weights' own type (trainer/utils.py: get_quantization_config), a script says which.
    const char* const dtype = keys.has("torch_dtype") ? "torch_dtype" : "dtype";
    const char* const key = keys.has("bnb_4bit_compute_dtype") ? "bnb_4bit_compute_dtype" : dtype;
    std::string computes = dtype_of(keys.text(key));
    if (computes.empty()) computes = context.published_dtype(keys);
    keys.take(key, "/training/quantization/bnb_4bit_compute_dtype",
              computes == "bf16"   ? "bfloat16"
              : computes == "fp16" ? "float16"
                                   : "float32");
  }
  // Only a script calls it.
  keys.take(kPrepares, "/training/quantization/prepare_model_for_kbit_training", keys.has(kPrepares));
}

void read_training_arguments(Context& context, Keys& keys) {
  keys.know(kTable);
  context.ledger.trainer = kTable.project;
  context.ledger.put("/training/loop/name", "transformers.Trainer");
  context.take_model(keys, "model_name_or_path");
  const Autocast autocast = autocast_of(context, keys);
  const char* const dtype = keys.has("torch_dtype") ? "torch_dtype" : "dtype";
  std::string weights = dtype_of(keys.text(dtype));
  if (weights.empty()) weights = context.published_dtype(keys);  // "auto": as they are published
  context.take_precision(keys, dtype, weights, autocast.key, autocast.dtype);
  keys.take("attn_implementation");
  take_checkpointing(keys, false);
  take_training_arguments(context, keys);
  if (keys.has("use_peft")) take_adapters(context, keys);  // of a script
}

}  // namespace oometer::importers
