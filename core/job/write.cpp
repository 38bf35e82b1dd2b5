#include <nlohmann/json.hpp>

#include "job/catalogue.h"
#include "job/names.h"
#include "job/parse.h"
#include "job/presets.h"
#include "job/read.h"

namespace oometer {

using nlohmann::json;

namespace {

/// Writes a field where it differs from its default.
template <typename T, typename U>
void put(json& object, const char* key, const T& value, const U& fallback) {
  if (!(value == fallback)) object[key] = value;
}

template <typename T, std::size_t N>
void put_name(json& object, const char* key, T value, T fallback, const std::array<Name<T>, N>& names) {
  if (value != fallback) object[key] = name_of(value, names);
}

void put_version(json& object, const char* key, const Version& value, const Version& fallback) {
  if (value != fallback) object[key] = to_string(value);
}

void put_object(json& object, const char* key, json value) {
  if (!value.empty()) object[key] = std::move(value);
}

json parsed(const std::string& text) {
  Result<json> document = parse_json(text);
  return document ? *std::move(document) : json::object();
}

std::int64_t default_length(const ModelChoice& model) {
  if (!model.preset.empty()) {
    const json preset = parsed(std::string(preset_text("models", model.preset)));
    const std::int64_t usual = preset.value("/defaults/sequence_length"_json_pointer, std::int64_t{0});
    if (usual != 0 && model.config.traits().takes_text) return usual;
  }
  return model.config.traits().default_sequence_length;
}

json write_targets(const TargetModules& targets) {
  if (targets.all_linear) return "all-linear";
  return targets.pattern.empty() ? json(targets.names) : json(targets.pattern);
}

json write_ia3(const Ia3Config& ia3) {
  json out = {{"target_modules", write_targets(ia3.target_modules)},
              {"feedforward_modules", write_targets(ia3.feedforward_modules)}};
  put(out, "modules_to_save", ia3.modules_to_save, std::vector<std::string>{});
  put(out, "also_train", ia3.also_train, std::vector<std::string>{});
  put(out, "autocast_adapter_dtype", ia3.autocast_adapter_dtype, true);
  return out;
}

json write_lora(const LoraConfig& lora) {
  const LoraConfig defaults;
  json out = json::object();
  put(out, "rank", lora.rank, defaults.rank);
  put(out, "alpha", lora.alpha, defaults.alpha);
  put(out, "dropout", lora.dropout, defaults.dropout);
  put_name(out, "bias", lora.bias, defaults.bias, kLoraBiases);
  out["target_modules"] = write_targets(lora.target_modules);
  put(out, "modules_to_save", lora.modules_to_save, defaults.modules_to_save);
  put(out, "also_train", lora.also_train, defaults.also_train);
  put(out, "use_dora", lora.use_dora, defaults.use_dora);
  put(out, "use_rslora", lora.use_rslora, defaults.use_rslora);
  put(out, "lora_bias", lora.lora_bias, defaults.lora_bias);
  put(out, "autocast_adapter_dtype", lora.autocast_adapter_dtype, defaults.autocast_adapter_dtype);
  return out;
}

json write_checkpointing(const CheckpointingConfig& checkpointing, const std::string& mode) {
  json out = {{"mode", mode}};
  put(out, "every", checkpointing.every, 1);
  put(out, "offload", checkpointing.offload, false);
  for (const StackSegments& stack : checkpointing.segments) {
    json list = json::array();
    for (const CheckpointSegment& segment : stack.segments) list.push_back({segment.begin, segment.end});
    out["segments"][stack.stack] = std::move(list);
  }
  return out;
}

json write_liger(const LigerConfig& liger) {
  json out = json::object();
  put(out, "rope", liger.rope, true);
  put(out, "rms_norm", liger.rms_norm, true);
  put(out, "swiglu", liger.swiglu, true);
  put(out, "cross_entropy", liger.cross_entropy, false);
  put(out, "fused_linear_cross_entropy", liger.fused_linear_cross_entropy, true);
  if (liger.accumulates_in_fp32) out["accum_dtype"] = "fp32";
  return out.empty() ? json(true) : out;
}

json write_quantization(const QuantizationConfig& config) {
  json out = {{"load_in_4bit", true}};
  if (config.is_nf4) out["bnb_4bit_quant_type"] = "nf4";
  put(out, "bnb_4bit_use_double_quant", config.double_quant, false);
  if (config.compute_dtype != DType::float32)
    out["bnb_4bit_compute_dtype"] = config.compute_dtype == DType::bfloat16 ? "bfloat16" : "float16";
  if (config.skip_modules) out["llm_int8_skip_modules"] = *config.skip_modules;
  put(out, "prepare_model_for_kbit_training", config.prepares, true);
  return out;
}

json write_training(const TrainingConfig& training) {
  const TrainingConfig defaults;
  json out = json::object();
  put_name(out, "stage", training.stage, defaults.stage, kStages);
  if (training.stage == Stage::custom) {
    put(out, "freeze", training.components.freeze, std::vector<std::string>{});
    put(out, "train_only", training.components.train_only, std::vector<std::string>{});
    put(out, "no_grad", training.components.no_grad, std::vector<std::string>{});
  }
  put_name(out, "precision", training.precision, defaults.precision, kPrecisions);
  json optimizer = json::object();
  put_name(optimizer, "name", training.optimizer.name, defaults.optimizer.name, kOptimizers);
  put_name(optimizer, "implementation", training.optimizer.implementation, defaults.optimizer.implementation,
           kImplementations);
  put(optimizer, "momentum", training.optimizer.momentum, defaults.optimizer.momentum);
  put(optimizer, "paged", training.optimizer.paged, false);
  put(optimizer, "param_groups", training.optimizer.param_groups, defaults.optimizer.param_groups);
  put_object(out, "optimizer", std::move(optimizer));
  put_name(out, "attention", training.attention, defaults.attention, kAttentions);
  const std::string mode = name_of(training.checkpointing.mode, kCheckpointModes);
  if (training.checkpointing.every != 1 || training.checkpointing.offload || !training.checkpointing.segments.empty()) {
    out["activation_checkpointing"] = write_checkpointing(training.checkpointing, mode);
  } else {
    put(out, "activation_checkpointing", mode, "none");
  }
  if (training.max_grad_norm) out["max_grad_norm"] = *training.max_grad_norm;
  put(out, "gradient_accumulation_steps", training.gradient_accumulation_steps, defaults.gradient_accumulation_steps);
  put(out, "keep_outputs", training.keep_outputs, defaults.keep_outputs);
  if (training.lora) out["lora"] = write_lora(*training.lora);
  if (training.ia3) out["ia3"] = write_ia3(*training.ia3);
  if (training.quantization) out["quantization"] = write_quantization(*training.quantization);
  put_name(out, "save_on_cpu", training.save_on_cpu, SavesOn::device, kSavesOn);
  put(out, "chunked_cross_entropy", training.cross_entropy_chunks, std::int64_t{0});
  if (training.liger != LigerConfig{}) out["liger"] = write_liger(training.liger);
  put(out, "loss", training.loss, "");
  return out;
}

json write_inference(const InferenceConfig& inference) {
  const InferenceConfig defaults;
  json out = json::object(), cache = json::object();
  put(out, "new_tokens", inference.new_tokens, defaults.new_tokens);
  put(out, "turns", inference.turns, defaults.turns);
  put(out, "turn_tokens", inference.turn_tokens, defaults.turn_tokens);
  put(out, "turn_images", inference.turn_images, defaults.turn_images);
  put(out, "prefill_chunk_size", inference.prefill_chunk_size, 0);
  put_name(out, "logits", inference.logits, defaults.logits, kLogits);
  put_name(cache, "implementation", inference.cache.implementation, defaults.cache.implementation, kCaches);
  put(cache, "max_cache_len", inference.cache.max_cache_len, 0);
  put(cache, "stride", inference.cache.stride, defaults.cache.stride);
  put_name(cache, "backend", inference.cache.backend, defaults.cache.backend, kCacheBackends);
  put(cache, "nbits", inference.cache.nbits, defaults.cache.nbits);
  put(cache, "axis_key", inference.cache.axis_key, 0);
  put(cache, "axis_value", inference.cache.axis_value, 0);
  put(cache, "q_group_size", inference.cache.q_group_size, defaults.cache.q_group_size);
  put(cache, "residual_length", inference.cache.residual_length, defaults.cache.residual_length);
  put(cache, "block_size", inference.cache.block_size, defaults.cache.block_size);
  put(cache, "gpu_memory_utilization", inference.cache.gpu_memory_utilization, defaults.cache.gpu_memory_utilization);
  put(cache, "max_num_batched_tokens", inference.cache.max_num_batched_tokens, 0);
  put(cache, "shared_prefix", inference.cache.shared_prefix, 0);
  put_object(out, "cache", std::move(cache));
  return out;
}

json write_fsdp(const FsdpConfig& fsdp, Strategy strategy, const std::vector<std::string>& blocks) {
  const FsdpConfig defaults;
  json out = json::object();
  put(out, "wrap", fsdp.wrap, blocks);
  put(out, "cpu_offload", fsdp.cpu_offload, defaults.cpu_offload);
  const bool first = strategy == Strategy::fsdp1;
  const auto buffers = first ? std::optional(DType::bfloat16) : std::nullopt;
  if (fsdp.param_dtype == DType::bfloat16 && fsdp.reduce_dtype == DType::float32 && fsdp.buffer_dtype == buffers) {
    out["mp"] = true;
  } else {
    if (fsdp.param_dtype) out["param_dtype"] = name_of(*fsdp.param_dtype, kFloats);
    if (fsdp.reduce_dtype) out["reduce_dtype"] = name_of(*fsdp.reduce_dtype, kFloats);
    if (fsdp.buffer_dtype) out["buffer_dtype"] = name_of(*fsdp.buffer_dtype, kFloats);
  }
  put(out, "reshard_after_forward", fsdp.reshard_after_forward, defaults.reshard_after_forward);
  put_name(out, "sharding", fsdp.sharding, defaults.sharding, kShardings);
  put_name(out, "backward_prefetch", fsdp.backward_prefetch, defaults.backward_prefetch, kPrefetches);
  put(out, "use_orig_params", fsdp.use_orig_params, defaults.use_orig_params);
  put(out, "forward_prefetch", fsdp.forward_prefetch, defaults.forward_prefetch);
  put(out, "limit_all_gathers", fsdp.limit_all_gathers, defaults.limit_all_gathers);
  put(out, "sync_module_states", fsdp.sync_module_states, defaults.sync_module_states);
  return out;
}

json write_ddp(const DdpConfig& ddp) {
  const DdpConfig defaults;
  json out = json::object();
  if (ddp.bucket_cap_mb) out["bucket_cap_mb"] = *ddp.bucket_cap_mb;
  put(out, "broadcast_buffers", ddp.broadcast_buffers, defaults.broadcast_buffers);
  put(out, "find_unused_parameters", ddp.find_unused_parameters, defaults.find_unused_parameters);
  put(out, "gradient_as_bucket_view", ddp.gradient_as_bucket_view, defaults.gradient_as_bucket_view);
  put(out, "static_graph", ddp.static_graph, defaults.static_graph);
  put(out, "lazy_bucket_allocation", ddp.lazy_bucket_allocation, defaults.lazy_bucket_allocation);
  put(out, "batched_grad_copy", ddp.batched_grad_copy, defaults.batched_grad_copy);
  return out;
}

}  // namespace

std::string to_json(const Job& job) {
  json out = {{"version", 1}};
  json model = json::object();
  put(model, "preset", job.model.preset, "");
  put(model, "name", job.model.given_name, "");
  const ModelTraits& traits = job.model.config.traits();
  if (!job.model.config_json.empty()) model[traits.is_recorded ? "graph" : "config"] = parsed(job.model.config_json);
  out["model"] = std::move(model);
  put_name(out, "task", job.task, Task::train, kTasks);

  json data = json::object();
  put(data, "micro_batch_size", job.data.micro_batch_size, 1);
  if (traits.takes_text) put(data, "sequence_length", job.data.sequence_length, default_length(job.model));
  put(data, "images_per_sample", job.data.images_per_sample, traits.takes_images ? 1 : 0);
  if (job.data.grid_t != 0) data["grid_thw"] = {job.data.grid_t, job.data.grid_h, job.data.grid_w};
  if (traits.cuts_images && job.data.images_per_sample != 0) {
    const std::int64_t height = job.data.image_height, width = job.data.image_width;
    if (height != traits.image_size || width != traits.image_size) data["image_size"] = {height, width};
    if (job.data.tiles != job.model.config.family().count_image(job.model.config.config(), height, width, 0).tiles)
      data["tiles"] = job.data.tiles;
  }
  put_object(out, "data", std::move(data));
  json training = write_training(job.training);
  if (traits.is_recorded)
    training["precision"] = name_of(job.training.precision, kPrecisions);  // its default is the file's
  put_object(out, "training", std::move(training));
  put_object(out, "inference", write_inference(job.inference));

  json parallel = json::object();
  put_name(parallel, "strategy", job.parallel.strategy, Strategy::none, kStrategies);
  put(parallel, "data", job.parallel.data, 1);
  if (job.parallel.rank) parallel["rank"] = *job.parallel.rank;
  if (job.parallel.all_ranks) parallel["rank"] = "all";
  put_object(parallel, "ddp", write_ddp(job.parallel.ddp));
  if (job.parallel.strategy == Strategy::fsdp1 || job.parallel.strategy == Strategy::fsdp2)
    put_object(parallel, "fsdp", write_fsdp(job.parallel.fsdp, job.parallel.strategy, traits.no_split_modules));
  if (!job.ds_config_json.empty()) {
    parallel["ds_config"] = parsed(job.ds_config_json);
  } else if (job.parallel.strategy == Strategy::deepspeed) {
    parallel["zero_stage"] = job.parallel.deepspeed.zero_stage;
  }
  put_object(out, "parallel", std::move(parallel));

  json gpu = json::object();
  if (job.gpu.allocator_limit) {
    gpu["usable_bytes"] = job.gpu.usable_bytes;
    gpu["compute_capability"] = std::to_string(job.gpu.major) + "." + std::to_string(job.gpu.minor);
  } else {
    put(gpu, "name", job.gpu.id, kDefaultGpu);
  }
  put_object(out, "gpu", std::move(gpu));

  const Runtime defaults = default_runtime(job.runtime.framework);
  json runtime = json::object();
  put_name(runtime, "framework", job.runtime.framework, Framework::transformers, kFrameworks);
  put_version(runtime, "torch", job.runtime.torch, defaults.torch);
  put_version(runtime, "transformers", job.runtime.transformers, defaults.transformers);
  put_version(runtime, "deepspeed", job.runtime.deepspeed, defaults.deepspeed);
  put_version(runtime, "peft", job.runtime.peft, defaults.peft);
  put(runtime, "cudnn", job.runtime.cudnn, defaults.cudnn);
  put(runtime, "expandable_segments", job.runtime.expandable_segments, defaults.expandable_segments);
  put_name(runtime, "experts", job.runtime.experts, defaults.experts, kExperts);
  put_object(out, "runtime", std::move(runtime));

  json calibration = json::object();
  put(calibration, "reserved", job.calibration.reserved, 1.0);
  if (job.calibration.outside_allocator) calibration["outside_allocator"] = *job.calibration.outside_allocator;
  put_object(out, "calibration", std::move(calibration));
  return out.dump(-1, ' ', false, json::error_handler_t::replace);
}

}  // namespace oometer
