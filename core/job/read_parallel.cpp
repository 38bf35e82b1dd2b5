#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "job/names.h"
#include "job/read.h"
#include "job/settings/fields.h"
#include "train/step.h"

namespace oometer {

using nlohmann::json;

namespace {

constexpr Range kElements{1, std::int64_t{1} << 40}, kElementsOrNone{0, std::int64_t{1} << 40};

/// transformers' fill_match: "auto" becomes what the trainer has, anything else must be equal to it.
void match_integer(ConfigReader& reader, const char* key, std::int64_t expected) {
  if (reader.is_auto(key)) return;
  const auto value = reader.optional_integer(key);
  if (value && *value != expected) {
    reader.fail_found(key, "inconsistent",
                      "expected \"auto\" or " + std::to_string(expected) + ", as in the rest of the job");
  }
}

/// Whether that is on. A trainer can leave it off with weights of that type.
bool match_enabled(ConfigReader& ds, const char* block, bool expected, bool is_trainer) {
  ConfigReader reader = ds.object(block);
  if (!reader.has("enabled") || reader.is_auto("enabled")) return expected;
  const bool enabled = reader.boolean("enabled", expected);
  if (enabled != expected && (enabled || !is_trainer))
    reader.fail_found(
        "enabled", "inconsistent",
        std::string("expected \"auto\" or ") + (expected ? "true" : "false") + ", as training.precision says");
  return enabled;
}

/// `offload_optimizer` or `offload_param`, which has no `ratio`.
OffloadDevice read_offload(ConfigReader& zero, const char* key, std::int64_t stage, const Runtime& runtime, bool& pins,
                           double* ratio = nullptr) {
  ConfigReader reader = zero.object(key);
  const OffloadDevice device =
      reader.choice("device", OffloadDevice::none,
                    {{"none", OffloadDevice::none}, {"cpu", OffloadDevice::cpu}, {"nvme", OffloadDevice::nvme}});
  const auto refuse = [&](const char* code, const std::string& message) { reader.fail_found("device", code, message); };
  if (device == OffloadDevice::none) return device;
  if (key == std::string_view("offload_param") && stage != 3)
    refuse("inconsistent", "DeepSpeed offloads parameters at stage 3 only; expected \"none\", or stage 3");
  else if (runtime.deepspeed < Version{0, 16, 0})
    refuse("not-modelled", "offload is supported with DeepSpeed 0.16 and later; expected \"none\"");
  if (ratio) {
    *ratio = reader.number("ratio", 1.0, 0.0, 1.0);
    const auto refuse_ratio = [&](const char* code, const char* expected) {
      if (*ratio != 1.0) reader.fail_found("ratio", code, expected);
    };
    if (stage != 3)
      refuse_ratio("inconsistent", "DeepSpeed offloads a part of the optimizer at stage 3 only; expected 1.0");
    if (device == OffloadDevice::nvme)
      refuse_ratio("not-modelled", "a part is not supported yet with device \"nvme\"; expected 1.0");
  }
  if (reader.boolean("super_offload", false))
    reader.fail_found("super_offload", "not-modelled", "not supported yet; expected false");
  pins = reader.boolean("pin_memory", false);
  reader.ignore({"nvme_path", "buffer_count", "buffer_size", "max_in_cpu", "pipeline_read", "pipeline_write",
                 "fast_init", "cpuadam_cores_perc"});
  reader.finish();
  if (device != OffloadDevice::nvme || stage != 3) return device;
  // Buffers of host memory stand between the device and the disk (deepspeed/runtime/swap_tensor).
  reader.findings().unmodelled.push_back(
      {reader.pointer_to("device") + ": offload to NVMe is answered as offload to host memory", Effect::either});
  return OffloadDevice::cpu;
}

/// A part of the optimizer in host memory: DeepSpeedZeroOptimizer_Stage3 then wants DeepSpeed's own Adam there, which
/// accelerate puts in the place of torch's unless the config says not to.
[[gnu::noinline]] void check_split_optimizer(ConfigReader& ds, ConfigReader& zero, const OptimizerConfig& optimizer) {
  const bool is_adam = optimizer.name == OptimizerName::adamw || optimizer.name == OptimizerName::adam;
  const bool is_replaced = ds.has("optimizer") || ds.boolean("zero_force_ds_cpu_optimizer", true);
  if (!is_adam || !is_replaced || optimizer.args.amsgrad)
    zero.object("offload_optimizer")
        .fail_found("ratio", "inconsistent",
                    "DeepSpeed stops with \"Hybrid Optimizer Only Supports DeepSpeedCPUAdam\"; expected 1.0, or adamw "
                    "without amsgrad and no \"zero_force_ds_cpu_optimizer\": false");
}

void check_stage(ConfigReader& reader, const char* key, std::int64_t stage) {
  if (stage == 0) {
    reader.fail_found(key, "not-modelled", "ZeRO 0 is not supported yet; expected 1, 2 or 3");
  }
}

constexpr const char* kNoHiddenSize =
    "transformers makes it of the config's hidden_size, which the class has not: expected a number";

/// A DeepSpeed configuration as transformers finishes it. `hidden_size` resolves "auto"; 0: nothing does.
DeepSpeedConfig read_ds_config(ConfigReader ds, const TrainingConfig& training, const DataConfig& data,
                               std::int64_t replicas, std::int64_t hidden_size, const Runtime& runtime) {
  DeepSpeedConfig config;
  match_integer(ds, "train_micro_batch_size_per_gpu", data.micro_batch_size);
  match_integer(ds, "gradient_accumulation_steps", training.gradient_accumulation_steps);
  match_integer(ds, "train_batch_size", data.micro_batch_size * training.gradient_accumulation_steps * replicas);
  const bool bf16 = match_enabled(ds, "bf16", training.precision == Precision::bf16, training.loop.is_trainer());
  const bool fp16 = match_enabled(ds, "fp16", training.precision == Precision::fp16, training.loop.is_trainer());
  config.casts_weights = bf16 || fp16 || training.precision == Precision::fp32;
  config.gradient_clipping = ds.is_auto("gradient_clipping") ? training.max_grad_norm.value_or(0.0)
                                                             : ds.number("gradient_clipping", 0.0, 0.0, 1e12);
  // "activation_checkpointing" and "sparse_attention" have no effect here: they are for models that call
  // deepspeed.checkpointing and deepspeed's attention themselves, as no class of transformers does.
  constexpr std::pair<const char*, Effect> kLeftOut[] = {
      {"amp", Effect::either},
      {"communication_data_type", Effect::either},  // of the buffers that gradients are reduced in
      {"compile", Effect::either},
      {"compression_training", Effect::more},
      {"data_types", Effect::more},  // grad_accum_dtype: gradients beside those of the weights' type
      {"sequence_parallel_size", Effect::less},
      {"tensor_parallel", Effect::less},
      {"torch_autocast", Effect::either},
  };
  for (const auto& [key, effect] : kLeftOut)
    if (ds.has(key)) ds.findings().unmodelled.push_back({ds.pointer_to(key) + ": is not modelled", effect});
  ds.ignore({"activation_checkpointing",
             "amp",
             "autotuning",
             "checkpoint",
             "comms_logger",
             "communication_data_type",
             "compile",
             "compression_training",
             "csv_monitor",
             "data_efficiency",
             "data_types",
             "dump_state",
             "flops_profiler",
             "memory_breakdown",
             "prescale_gradients",
             "gradient_predivide_factor",
             "scheduler",
             "sequence_parallel_size",
             "sparse_attention",
             "steps_per_print",
             "tensor_parallel",
             "tensorboard",
             "torch_autocast",
             "wall_clock_breakdown",
             "wandb",
             "zero_allow_untested_optimizer",
             "zero_force_ds_cpu_optimizer"});

  if (!ds.has("zero_optimization")) {
    ds.fail("zero_optimization", "missing", "found nothing; expected {\"stage\": 2, ...}");
  }
  ConfigReader zero = ds.object("zero_optimization");
  config.zero_stage = zero.integer("stage", 0, {0, 3});
  check_stage(zero, "stage", config.zero_stage);
  if (hidden_size == 0)
    for (const char* key : {"reduce_bucket_size", "stage3_prefetch_bucket_size", "stage3_param_persistence_threshold"})
      if (zero.is_auto(key)) zero.fail_found(key, "inconsistent", kNoHiddenSize);
  if (zero.is_auto("reduce_bucket_size")) {
    config.reduce_bucket_size = hidden_size * hidden_size;
  } else {
    config.reduce_bucket_size = zero.integer("reduce_bucket_size", config.reduce_bucket_size, kElements);
  }
  config.allgather_bucket_size = zero.integer("allgather_bucket_size", config.allgather_bucket_size, kElements);
  config.sub_group_size = zero.integer("sub_group_size", config.sub_group_size, kElements);
  // overlap_comm_valid: on by default at stage 3.
  config.overlap_comm = zero.boolean("overlap_comm", config.zero_stage == 3);
  // HfTrainerDeepSpeedConfig.trainer_config_finalize (transformers 5.23)
  const auto elements = [&](const char* key, std::int64_t automatic, std::int64_t otherwise) {
    return zero.is_auto(key) ? automatic : zero.integer(key, otherwise, kElementsOrNone);
  };
  config.prefetch_bucket_size =
      elements("stage3_prefetch_bucket_size", hidden_size * hidden_size * 9 / 10, config.prefetch_bucket_size);
  config.param_persistence_threshold =
      elements("stage3_param_persistence_threshold", 10 * hidden_size, config.param_persistence_threshold);
  config.prefetch_bucket_is_auto = zero.is_auto("stage3_prefetch_bucket_size");
  config.param_persistence_is_auto = zero.is_auto("stage3_param_persistence_threshold");
  config.max_live_parameters = zero.integer("stage3_max_live_parameters", config.max_live_parameters, kElementsOrNone);
  config.max_reuse_distance = zero.integer("stage3_max_reuse_distance", config.max_reuse_distance, kElementsOrNone);
  config.model_persistence_threshold =
      zero.integer("stage3_model_persistence_threshold", config.model_persistence_threshold,
                   {0, std::numeric_limits<std::int64_t>::max()});
  config.allgather_sequential = zero.boolean("stage3_allgather_sequential", false);
  config.memory_efficient_linear = zero.boolean("memory_efficient_linear", true);
  config.gather_16bit_weights_on_model_save = zero.boolean(
      "stage3_gather_16bit_weights_on_model_save", zero.boolean("stage3_gather_fp16_weights_on_model_save", false));
  config.contiguous_gradients = zero.boolean("contiguous_gradients", true);
  config.reduce_scatter = zero.boolean("reduce_scatter", true);
  config.round_robin_gradients = zero.boolean("round_robin_gradients", false);
  config.offload_optimizer =
      read_offload(zero, "offload_optimizer", config.zero_stage, runtime, config.pins_optimizer, &config.offload_ratio);
  if (config.splits_optimizer()) check_split_optimizer(ds, zero, training.optimizer);
  config.offload_param = read_offload(zero, "offload_param", config.zero_stage, runtime, config.pins_param);
  for (const char* key : {"cpu_offload", "cpu_offload_param", "zenflow", "zero_quantized_gradients"})
    zero.refuse(key, kNotYet);
  if (config.zero_stage == 3) {
    // What is gathered otherwise: quantised, within a node, by groups of modules.
    for (const char* key :
         {"zero_quantized_weights", "zero_quantized_nontrainable_weights", "stage3_use_all_reduce_for_fetch_params",
          "stage3_module_granularity_threshold", "leaf_module"})
      zero.refuse(key, kNotYet);
    if (zero.integer("zero_hpz_partition_size", 1, kElementsOrNone) > 1)
      zero.fail_found("zero_hpz_partition_size", "not-modelled", kNotYet);
  }
  // DeepSpeedZeroOptimizer.__init__, of both: assertions.
  if (config.zero_stage >= 2 && config.reduce_scatter) {
    constexpr const char* kStops = "DeepSpeed has it with \"reduce_scatter\": false only: leave it out";
    if (ds.boolean("prescale_gradients", false)) ds.fail_found("prescale_gradients", "inconsistent", kStops);
    if (ds.number("gradient_predivide_factor", 1.0, 0.0, 1e12) != 1.0)
      ds.fail_found("gradient_predivide_factor", "inconsistent", kStops);
  }
  // The other keys of DeepSpeedZeroConfig (extra="forbid"): stage 3's, and those that change no memory at stage 2.
  zero.ignore({"allgather_partitions",
               "compute_grad_norm",
               "cpu_offload_use_pin_memory",
               "elastic_checkpoint",
               "enable_sanity_checks",
               "ignore_unused_parameters",
               "leaf_module",
               "legacy_stage1",
               "load_from_fp32_weights",
               "log_trace_cache_warnings",
               "override_module_apply",
               "parameter_alignment",
               "pipeline_loading_checkpoint",
               "save_muon_momentum_buffer_in_memory",
               "stage3_module_granularity_threshold",
               "stage3_use_all_reduce_for_fetch_params",
               "use_multi_rank_bucket_allreduce",
               "zero_hpz_partition_size",
               "zero_quantized_nontrainable_weights",
               "zero_quantized_weights"});
  zero.finish();
  ds.finish();
  return config;
}

/// LLaVA's scripts/zero2.json and zero3.json (v1.2.2): what `zero_stage` alone means.
DeepSpeedConfig llava_zero(std::int64_t stage, std::int64_t hidden_size) {
  DeepSpeedConfig config;
  config.zero_stage = stage;
  config.overlap_comm = true;
  config.reduce_bucket_size = hidden_size * hidden_size;
  if (stage == 3) {
    config.prefetch_bucket_size = hidden_size * hidden_size * 9 / 10;
    config.param_persistence_threshold = 10 * hidden_size;
    config.gather_16bit_weights_on_model_save = true;
    config.prefetch_bucket_is_auto = config.param_persistence_is_auto = true;
  }
  return config;
}

/// DistributedDataParallel's keyword arguments. A trainer of TRL looks for unused parameters where Trainer does, and of
/// models that take images: a text without any leaves the tower without gradients (SFTTrainer.__init__ and
/// DPOTrainer.__init__, trl 1.16).
DdpConfig read_ddp(ConfigReader ddp, const TrainingConfig& training, const Runtime& runtime, bool takes_images) {
  DdpConfig config;
  if (training.loop.is_trl()) {
    const CheckpointMode mode = training.checkpointing.mode;
    config.find_unused_parameters =
        training.has_adapters() || mode == CheckpointMode::none || (takes_images && mode != CheckpointMode::reentrant);
  }
  read_fields(ddp, settings::ddp_section, config);
  ddp.boolean("skip_all_reduce_unused_params", false);
  if (config.lazy_bucket_allocation && runtime.torch < Version{2, 15, 0})
    ddp.fail_found("lazy_bucket_allocation", "inconsistent", "torch has it since 2.15: leave it out");
  if (config.find_unused_parameters && !config.static_graph &&
      training.checkpointing.mode == CheckpointMode::reentrant) {
    ddp.fail_found("find_unused_parameters", "inconsistent",
                   "DistributedDataParallel stops with reentrant checkpointing (a parameter is marked ready twice): "
                   "leave it out, set static_graph, or use non-reentrant checkpointing");
  }
  if (config.static_graph && training.gradient_accumulation_steps > 1) {
    // Reducer::delay_all_reduce at the end of a first backward under no_sync, which has prepared nothing for it.
    ddp.fail_found("static_graph", "inconsistent",
                   "DistributedDataParallel stops where gradients are accumulated (\"expect_autograd_hooks_ INTERNAL "
                   "ASSERT FAILED\"): leave it out, or set gradient_accumulation_steps to 1");
  }
  ddp.finish();
  return config;
}

/// What a trainer was compared with.
void check_under_trainer(ConfigReader& reader, const DeepSpeedConfig& config, const Job& job) {
  const char* const key = reader.has("ds_config") ? "ds_config" : "strategy";
  const LoopConfig& loop = job.training.loop;
  const ModelTraits& traits = job.model.config.traits();
  const bool is_llava = loop.name == LoopName::llava;
  const bool is_of_preferences = !is_llava && loop.name != LoopName::trainer && loop.name != LoopName::sft;
  if (config.zero_stage == 3 && is_of_preferences && (traits.has_experts || traits.takes_images))
    reader.fail(key, "not-modelled",
                "found ZeRO-3 under " + name_of(loop.name, kLoops) + " with " + traits.class_name +
                    ", which is not supported yet; expected stage 1 or 2");
  else if (config.offloads_optimizer())
    reader.fail(key, "not-modelled",
                "found offload under a trainer, which is not supported yet; expected none, or training.loop "
                "\"step\"");
  else if (is_llava && job.runtime.deepspeed != Version{0, 12, 6})
    reader.fail("strategy", "not-modelled",
                "found LLaVATrainer with another DeepSpeed than its own, which is not supported yet; expected "
                "runtime.deepspeed 0.12.6");
  else if (!is_llava && job.runtime.deepspeed < Version{0, 19, 0})
    reader.fail("strategy", "not-modelled",
                "found a trainer with DeepSpeed before 0.19, which is not supported yet; expected runtime.deepspeed "
                "0.19.8");
}

/// Optimizers of a class by its path, or with arguments: under DDP each rank's is as on one GPU; FSDP2's shards are
/// taken by those that change one weight after another.
bool runs_on_several(const OptimizerConfig& optimizer, Strategy strategy) {
  if (!optimizer.rest.empty() || optimizer.in_backward) return false;
  const OptimizerName name = optimizer.name;
  if (name <= OptimizerName::sgd && optimizer.args == OptimizerArgs()) return true;
  const bool is_elementwise = (name >= OptimizerName::torchao_adamw_8bit && name <= OptimizerName::optimi_lion) ||
                              name == OptimizerName::stable_adamw || name <= OptimizerName::adam;
  const bool changes_gradients = name == OptimizerName::lomo || name == OptimizerName::adalomo ||
                                 name == OptimizerName::galore_adamw_8bit || name == OptimizerName::adam_mini ||
                                 !optimizer.args.target_modules.empty();
  if (strategy == Strategy::ddp) return !changes_gradients;
  return strategy == Strategy::fsdp2 && is_elementwise;
}

void refuse_adapted_parameters(ConfigReader& reader, const char* key) {
  reader.fail_found(
      key, "not-modelled",
      "adapters of experts' parameters are not supported under it yet; expected ddp or ZeRO-2, or names of "
      "attention's layers in target_modules");
}

/// What only some strategies go with, and no first answer has.
bool has_rare_keys(const TrainingConfig& training) {
  return training.ema || training.quantization || training.cut_cross_entropy || !training.float32_modules.empty() ||
         (training.lora && training.lora->has_kernels());
}

[[gnu::noinline]] void check_rare_keys(ConfigReader& reader, const TrainingConfig& training,
                                       const ParallelConfig& config) {
  const bool deepspeed = config.strategy == Strategy::deepspeed,
             fsdp = config.strategy == Strategy::fsdp1 || config.strategy == Strategy::fsdp2;
  if (training.quantization && deepspeed)
    reader.fail_found("strategy", "not-modelled",
                      "quantized weights under it are not supported yet; expected none, ddp, fsdp1 or fsdp2");
  if (training.ema && config.strategy != Strategy::ddp)
    reader.fail_found("strategy", "not-modelled",
                      "training.ema under it is not supported yet; expected none or ddp, or no ema");
  if (training.cut_cross_entropy && fsdp &&
      !(config.strategy == Strategy::fsdp2 && config.fsdp.is_prepared_by(FsdpConfig::Preparer::axolotl)))
    reader.fail_found(
        "strategy", "not-modelled",
        "training.cut_cross_entropy under it is supported with Axolotl's FSDP 2 alone; expected none, ddp, "
        "deepspeed, or parallel.fsdp.preparer \"axolotl\"");
  if (training.quantization && training.quantization->moe_experts && fsdp)
    reader.fail_found("strategy", "not-modelled",
                      "training.quantization.quantize_moe_experts under it is not supported yet; expected none or ddp");
  if (!training.float32_modules.empty() && (deepspeed || fsdp))
    reader.fail_found("strategy", "not-modelled",
                      "training.float32_modules under it is not supported yet; expected none or ddp");
  if (training.lora && training.lora->has_kernels() && (deepspeed || fsdp))
    reader.fail_found("strategy", "not-modelled",
                      "Axolotl's kernels of adapters under it are not supported yet; expected none or ddp");
}

}  // namespace

[[gnu::noinline]] void check_bitsandbytes(ConfigReader& reader, const ParallelConfig& config) {
  if (config.strategy == Strategy::deepspeed || config.fsdp.cpu_offload)
    reader.fail_found("strategy", "not-modelled",
                      "bitsandbytes' optimizers are not supported yet with deepspeed, or with FSDP's cpu_offload; "
                      "expected none, ddp or fsdp1, or one of torch's implementations");
  else if (config.strategy == Strategy::fsdp2)
    reader.fail_found("strategy", "inconsistent",
                      "bitsandbytes' optimizers stop at FSDP2's DTensors (\"does not have a sharding strategy "
                      "registered\"); expected fsdp1, or one of torch's implementations");
}

[[gnu::noinline]] void check_segments_on_shards(ConfigReader& reader, const Job& job) {
  for (const StackSegments& stack : job.training.checkpointing.segments)
    if (std::any_of(stack.segments.begin(), stack.segments.end(),
                    [](const CheckpointSegment& segment) { return segment.end - segment.begin > 1; }))
      reader.fail_found(
          "strategy", "not-modelled",
          "checkpointed regions of several blocks under FSDP are not supported yet; expected single blocks in "
          "training.activation_checkpointing.segments");
}

[[gnu::noinline]] void refuse_autocast(ConfigReader& reader) {
  reader.fail("strategy", "inconsistent",
              "found deepspeed with autocast in training.precision; the engine keeps the weights in half precision and "
              "does not autocast; expected bf16 or fp16");
}

[[gnu::noinline]] void check_stage_3(ConfigReader& reader, const Job& job, const DeepSpeedConfig& config) {
  const ModelTraits& traits = job.model.config.traits();
  const TrainingConfig& training = job.training;
  const char* const key = reader.has("zero_stage") ? "zero_stage" : "ds_config";
  if (const auto refusal = traits.refusal(Feature::zero3)) reader.fail_found("strategy", refusal->code, refusal->why);
  if (!reader.ok()) return;
  if (!config.casts_weights)
    reader.fail(
        key, "not-modelled",
        "found weights in half precision while DeepSpeed's bf16 and fp16 are off, as the trainer's bf16 and fp16 "
        "say; ZeRO-3 then cuts them as float32, which is not supported yet; expected bf16 true");
  else if (traits.has_experts && job.runtime.deepspeed < Version{0, 19, 0})
    reader.fail("strategy", "not-modelled",
                "found experts under ZeRO-3 with DeepSpeed before 0.19, which is not supported yet; expected "
                "runtime.deepspeed 0.19.8, or stage 2");
  else if (training.lora && !training.lora->target_parameters.empty())
    refuse_adapted_parameters(reader, key);
  else if (training.cut_cross_entropy)
    reader.fail_found("strategy", "not-modelled",
                      "found ZeRO-3 and training.cut_cross_entropy, which gathers the head by itself in backward; this "
                      "is not supported yet: leave one of them out");
  else if (!training.checkpointing.segments.empty())
    reader.fail(key, "not-modelled",
                "found stage 3 with chosen checkpoints, which are not supported yet under ZeRO-3; expected stage 2, or "
                "training.activation_checkpointing without segments");
}

Parallel read_parallel(ConfigReader reader, const Job& job) {
  const ModelTraits& traits = job.model.config.traits();
  Parallel parallel;
  ParallelConfig& config = parallel.config;
  read_fields(reader, settings::parallel_section, config);
  if (const json* rank = reader.find("rank"); rank && rank->is_string())
    config.all_ranks = reader.choice<bool>("rank", false, {{"all", true}});
  else
    config.rank = reader.optional_integer("rank", {0, config.data - 1});
  const bool deepspeed = config.strategy == Strategy::deepspeed;
  const bool infers = job.task == Task::inference;
  if (infers && config.strategy != Strategy::none)
    reader.fail_found("strategy", "not-modelled",
                      "inference over several GPUs is supported as replicas of the whole model (data, with strategy "
                      "\"none\"); tensor parallelism is not supported yet");
  if (config.strategy == Strategy::none && config.data > 1 && !infers) {
    reader.fail(reader.has("strategy") ? "strategy" : "data", "inconsistent",
                "found " + std::to_string(config.data) +
                    " replicas without a strategy; expected ddp, or deepspeed with a zero_stage");
  }
  if (config.strategy == Strategy::ddp) {
    config.ddp = read_ddp(reader.object("ddp"), job.training, job.runtime, job.model.config.traits().takes_images);
  } else if (reader.has("ddp")) {
    reader.fail_found("ddp", "inconsistent", "only strategy \"ddp\" reads it: leave it out or set the strategy");
  }
  const bool fsdp = config.strategy == Strategy::fsdp1 || config.strategy == Strategy::fsdp2;
  if (fsdp) {
    config.fsdp = read_fsdp(reader.object("fsdp"), job, config);
    if (job.runtime.torch < Version{2, 15, 0})
      reader.fail_found("strategy", "not-modelled",
                        "FSDP is supported with torch 2.15 only; expected ddp or deepspeed");
    check_segments_on_shards(reader, job);
  } else if (reader.has("fsdp")) {
    reader.fail_found("fsdp", "inconsistent", "only \"fsdp1\" and \"fsdp2\" read it: leave it out or set the strategy");
  }
  for (const char* key : {"zero_stage", "ds_config"}) {
    if (reader.has(key) && !deepspeed) {
      reader.fail_found(key, "inconsistent", "only strategy \"deepspeed\" reads it: leave it out or set the strategy");
    }
  }
  reader.ignore({"accelerate_config"});  // spelled out before
  const auto stage = read_integer(reader, settings::parallel_section, "zero_stage");
  if (const auto refusal = deepspeed ? traits.refusal(Feature::deepspeed) : std::nullopt)
    reader.fail_found("strategy", refusal->code, refusal->why);
  if (const auto refusal = fsdp ? traits.refusal(Feature::fsdp) : std::nullopt)
    reader.fail_found("strategy", refusal->code, refusal->why);
  const bool adapts_parameters = job.training.lora && !job.training.lora->target_parameters.empty();
  if (adapts_parameters && fsdp) refuse_adapted_parameters(reader, "strategy");
  if (config.strategy != Strategy::none && has_rare_keys(job.training)) check_rare_keys(reader, job.training, config);
  if (job.training.optimizer.is_bitsandbytes()) check_bitsandbytes(reader, config);
  const json* const ds_config = deepspeed ? reader.find("ds_config") : nullptr;
  const bool is_replaced = ds_config && ds_config->is_object() && ds_config->contains("optimizer");
  if (const OptimizerConfig& optimizer = job.training.optimizer;
      config.strategy != Strategy::none && !is_replaced && !runs_on_several(optimizer, config.strategy))
    reader.fail("strategy", "not-modelled",
                "found training.optimizer " + quote(name_of(optimizer.name, kOptimizers)) +
                    " or arguments of it, which is not supported with this strategy yet; expected adamw, adam or sgd");
  if (job.training.optimizer.implementation == OptimizerImplementation::deepspeed_fused && !deepspeed)
    reader.fail("strategy", "inconsistent",
                "found training.optimizer.implementation \"deepspeed-fused\", which only strategy \"deepspeed\" has");
  if (deepspeed && reader.ok()) {
    const std::int64_t hidden_size = traits.hidden_size;
    const Precision precision = job.training.precision;
    if (stage) check_stage(reader, "zero_stage", *stage);
    if (autocast_dtype(precision)) refuse_autocast(reader);
    if (const json* given = reader.find("ds_config")) {
      parallel.ds_config_json = given->is_object() ? given->dump() : "";
      ConfigReader ds = reader.object("ds_config");
      if (ds.has("optimizer")) parallel.optimizer = read_ds_optimizer(ds, job.runtime);
      config.deepspeed = read_ds_config(std::move(ds), job.training, job.data, config.data, hidden_size, job.runtime);
      // DeepSpeedCPUAdam has nothing on the device, and neither has its stand-in.
      if (parallel.optimizer && config.deepspeed.offloads_optimizer() &&
          parallel.optimizer->implementation == OptimizerImplementation::deepspeed_fused)
        parallel.optimizer->implementation = OptimizerImplementation::fused;
      if (stage && reader.ok() && *stage != config.deepspeed.zero_stage) {
        reader.fail_found(
            "zero_stage", "inconsistent",
            "the ds_config says " + std::to_string(config.deepspeed.zero_stage) + ": leave one of them out");
      }
    } else if (stage && hidden_size == 0) {
      reader.fail("ds_config", "missing",
                  "found none, and of \"auto\", which is in its place, " + std::string(kNoHiddenSize));
    } else if (stage) {
      config.deepspeed = llava_zero(*stage, hidden_size);
    } else {
      reader.fail("zero_stage", "missing", "found nothing; expected zero_stage or ds_config");
    }
    // DeepSpeedEngine._broadcast_model: p.data.view(torch.uint8).
    if (*traits.scalar_parameter != '\0' && config.deepspeed.zero_stage < 3 &&
        job.runtime.deepspeed >= Version{0, 19, 0} && reader.ok())
      reader.fail(reader.has("zero_stage") ? "zero_stage" : "ds_config", "inconsistent",
                  "found stage " + std::to_string(config.deepspeed.zero_stage) +
                      "; DeepSpeed 0.19 fails at a scalar parameter such as " + traits.class_name + "'s " +
                      traits.scalar_parameter + "; expected stage 3 or another strategy");
    if (config.deepspeed.zero_stage == 3) check_stage_3(reader, job, config.deepspeed);
    if (job.training.loop.is_trainer() && reader.ok()) check_under_trainer(reader, config.deepspeed, job);
  }
  reader.finish();
  return parallel;
}

}  // namespace oometer
