#include <nlohmann/json.hpp>
#include <optional>

#include "job/catalogue.h"
#include "job/names.h"
#include "job/parse.h"
#include "job/presets.h"
#include "job/read.h"
#include "job/settings/fields.h"
#include "train/step.h"

namespace oometer {

using nlohmann::json;

namespace {

/// Writes a field where it differs from its default.
template <typename T, typename U>
void put(json& object, const char* key, const T& value, const U& fallback) {
  if (!(value == fallback)) object[key] = value;
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

/// Some operations' alone.
json write_kernels(Kernels kernels) {
  json out = json::object();
  for (const auto& [key, operation] :
       {std::pair{"linear_attention", Kernels::linear_attention}, std::pair{"mamba", Kernels::mamba2},
        std::pair{"causal_conv1d", Kernels::causal_conv1d}})
    if (has(kernels, operation)) out[key] = "packages";
  return out;
}

json write_targets(const TargetModules& targets) {
  if (targets.all_linear) return "all-linear";
  return targets.pattern.empty() ? json(targets.names) : json(targets.pattern);
}

json write_ia3(const Ia3Config& ia3) {
  json out = write_fields(settings::ia3_section, ia3);
  out["target_modules"] = write_targets(ia3.target_modules);
  out["feedforward_modules"] = write_targets(ia3.feedforward_modules);
  return out;
}

json write_lora(const LoraConfig& lora) {
  json out = write_fields(settings::lora_section, lora);
  out["target_modules"] = write_targets(lora.target_modules);
  return out;
}

/// One by itself where its name is the usual one.
json write_peft(const std::vector<PeftAdapter>& adapters) {
  json all = json::array();
  for (const PeftAdapter& adapter : adapters) {
    json one = parsed(adapter.config);
    put(one, "autocast_adapter_dtype", adapter.autocast_adapter_dtype, true);
    put(one, "name", adapter.name, all.empty() ? "default" : "");
    put(one, "active", adapter.active, all.empty());
    all.push_back(std::move(one));
  }
  return all.size() == 1 ? all[0] : all;
}

/// Its mode alone where that says all.
json write_checkpointing(const CheckpointingConfig& checkpointing) {
  json out = write_fields(settings::checkpointing_section, checkpointing);
  for (const StackSegments& stack : checkpointing.segments) {
    json list = json::array();
    for (const CheckpointSegment& segment : stack.segments) list.push_back({segment.begin, segment.end});
    out["segments"][stack.stack] = std::move(list);
  }
  const bool is_plain = out.size() == out.count("mode");
  out["mode"] = name_of(checkpointing.mode, kCheckpointModes);
  return is_plain ? out["mode"] : out;
}

json write_liger(const LigerConfig& liger, const LigerConfig& usual) {
  json out = write_fields(settings::liger_section, liger, usual);
  return out.empty() ? json(true) : out;
}

json write_quantization(const QuantizationConfig& config) {
  json out = write_fields(settings::quantization_section, config);
  out["load_in_4bit"] = true;
  if (config.skip_modules) out["llm_int8_skip_modules"] = *config.skip_modules;
  return out;
}

/// A loop by its name alone where that says all. Its arguments: those that no plain key says.
void write_loop(json& training, const LoopConfig& loop) {
  json out = write_fields(settings::loop_section, loop);
  const bool is_step = !loop.is_trainer();
  if (!is_step)
    if (json args = write_fields(settings::trainer_arguments_section, loop); !args.empty())
      out["args"] = std::move(args);
  if (loop.is_trl()) out["args"]["max_length"] = loop.max_length ? json(*loop.max_length) : json();
  if (loop.loads_on_host == is_step) out["load"] = loop.loads_on_host ? "host" : "device";
  training.erase("loop");
  if (out.empty()) return;
  out["name"] = name_of(loop.name, kLoops);
  training["loop"] = out.size() == 1 ? out["name"] : out;
}

json write_optimizer(const OptimizerConfig& optimizer) {
  json out = write_fields(settings::optimizer_section, optimizer);
  if (name_of(optimizer.name, kOptimizers).find('.') != std::string::npos) {
    // Of a class by its path absence means other defaults.
    out["implementation"] = name_of(optimizer.implementation, kImplementations);
    out["param_groups"] = optimizer.param_groups;
  }
  put_object(out, "args", write_fields(settings::optimizer_arguments_section, optimizer.args));
  if (optimizer.name == OptimizerName::muon) out["args"]["nesterov"] = optimizer.args.nesterov;  // on by default
  if (optimizer.name == OptimizerName::torchao_adamw_4bit)
    out["args"]["block_size"] = optimizer.args.block_size;  // 128
  for (const OptimizerConfig& rest : optimizer.rest) {
    out["rest"] = write_optimizer(rest);
    if (!out["rest"].contains("name")) out["rest"]["name"] = name_of(rest.name, kOptimizers);
  }
  return out;
}

json write_training(const TrainingConfig& training, const ModelTraits& traits) {
  json out = write_fields(settings::training_section, training);
  write_loop(out, training.loop);
  if (training.loop.is_trainer()) {
    out.erase("max_grad_norm");
    put(out, "max_grad_norm", training.max_grad_norm.value_or(0), 1.0);
  }
  if (training.stage != Stage::custom)  // they follow from it
    for (const char* key : {"freeze", "train_only", "no_grad"}) out.erase(key);
  if (are_in_autocast(training.precision) || training.loop.is_trl()) {
    const std::optional<DType> autocast = autocast_dtype(training.precision);
    out["precision"] = {{"weights", name_of(weight_dtype(training.precision), kFloats)},
                        {"autocast", autocast ? json(name_of(*autocast, kFloats)) : json()}};
  }
  put_object(out, "optimizer", write_optimizer(training.optimizer));
  put(out, "activation_checkpointing", write_checkpointing(training.checkpointing),
      training.loop.is_trl() ? "non-reentrant" : "none");
  if (training.lora) out["lora"] = write_lora(*training.lora);
  if (training.ia3) out["ia3"] = write_ia3(*training.ia3);
  if (!training.peft.empty()) out["peft"] = write_peft(training.peft);
  if (training.quantization) out["quantization"] = write_quantization(*training.quantization);
  if (training.liger != LigerConfig{}) out["liger"] = write_liger(training.liger, traits.liger.usual);
  put(out, "loss", training.loss, "");
  return out;
}

json write_inference(const InferenceConfig& inference) {
  json out = write_fields(settings::inference_section, inference);
  put_object(out, "cache", write_fields(settings::cache_section, inference.cache));
  return out;
}

json write_fsdp(const FsdpConfig& fsdp, Strategy strategy, const std::vector<std::string>& blocks) {
  json out = write_fields(settings::fsdp_section, fsdp);
  out.erase("wrap");
  put(out, "wrap", fsdp.wrap, blocks);
  const bool first = strategy == Strategy::fsdp1;
  const auto buffers = first ? std::optional(DType::bfloat16) : std::nullopt;
  if (fsdp.param_dtype == DType::bfloat16 && fsdp.reduce_dtype == DType::float32 && fsdp.buffer_dtype == buffers) {
    out["mp"] = true;
  } else {
    if (fsdp.param_dtype) out["param_dtype"] = name_of(*fsdp.param_dtype, kFloats);
    if (fsdp.reduce_dtype) out["reduce_dtype"] = name_of(*fsdp.reduce_dtype, kFloats);
    if (fsdp.buffer_dtype) out["buffer_dtype"] = name_of(*fsdp.buffer_dtype, kFloats);
  }
  return out;
}

}  // namespace

std::string to_json(const Job& job) {
  json out = {{"version", 1}};
  json model = json::object();
  put(model, "preset", job.model.preset, "");
  put(model, "name", job.model.given_name, "");
  if (job.model.reference != Reference::of_trainer) model["reference"] = name_of(job.model.reference, kReferences);
  if (job.model.reference_dtype) model["reference_dtype"] = name_of(*job.model.reference_dtype, kFloats);
  const ModelTraits& traits = job.model.config.traits();
  if (!job.model.config_json.empty()) model[traits.is_recorded ? "graph" : "config"] = parsed(job.model.config_json);
  out["model"] = std::move(model);
  if (job.task != Task::train) out["task"] = name_of(job.task, kTasks);

  json data = json::object();
  if (job.samples.batches.empty() || job.samples.packing != Packing::none)
    put(data, "micro_batch_size", job.data.micro_batch_size, !job.training.loop.is_trainer() ? 1 : 8);
  if (job.samples.are_given() || job.training.loop.is_trl())
    data["sequence_length"] = job.data.sequence_length;
  else if (traits.takes_text)
    put(data, "sequence_length", job.data.sequence_length, default_length(job.model));
  if (traits.takes_targets) put(data, "target_length", job.data.target_length, job.data.sequence_length);
  data.update(write_samples(job.samples));
  put(data, "images_per_sample", job.data.images_per_sample, traits.usual_images(job.task == Task::inference));
  if (!job.data.sample_images.empty())
    write_image_sizes(job.data, traits, data);
  else if (job.data.video)
    write_video(*job.data.video, data);
  else if (job.data.grid_t != 0 && traits.reads_images_by("grid_thw"))
    data["grid_thw"] = {job.data.grid_t, job.data.grid_h, job.data.grid_w};
  else if (job.data.grid_t != 0 && traits.reads_images_by("frames"))
    data["frames"] = job.data.grid_t;
  else if (job.data.images_per_sample != 0 && traits.reads_images_by("image_size") &&
           job.model.config.family().read_images)
    data["image_size"] = {job.data.image_height, job.data.image_width};
  if (traits.reads_images_by("objects_per_image")) data["objects_per_image"] = job.data.target_length;
  write_routing(job.data.routing, data);
  if (traits.max_audios != 0) {
    put(data, "audios_per_sample", job.data.audios_per_sample, 1);
    if (job.data.audios_per_sample != 0) put(data, "audio_seconds", job.data.audio_seconds, traits.usual_audio_seconds);
  }
  if (traits.cuts_images && job.data.images_per_sample != 0 && job.data.sample_images.empty()) {
    const std::int64_t height = job.data.image_height, width = job.data.image_width;
    if (height != traits.image_size || width != traits.image_size) data["image_size"] = {height, width};
    if (job.data.tiles != job.model.config.family().count_image(job.model.config.config(), height, width, 0).tiles)
      data["tiles"] = job.data.tiles;
  }
  put_object(out, "data", std::move(data));
  json training = write_training(job.training, traits);
  if (traits.is_recorded)
    training["precision"] = name_of(job.training.precision, kPrecisions);  // its default is the file's
  put_object(out, "training", std::move(training));
  put_object(out, "inference", write_inference(job.inference));

  json parallel = write_fields(settings::parallel_section, job.parallel);
  if (job.parallel.rank) parallel["rank"] = *job.parallel.rank;
  if (job.parallel.all_ranks) parallel["rank"] = "all";
  json ddp = write_fields(settings::ddp_section, job.parallel.ddp);
  if (job.training.loop.is_trainer() && job.parallel.strategy == Strategy::ddp)  // which has another default
    ddp["find_unused_parameters"] = job.parallel.ddp.find_unused_parameters;
  put_object(parallel, "ddp", std::move(ddp));
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
  json host = write_fields(settings::host_section, job.host);
  if (job.host.memory) host["memory"] = *job.host.memory;
  put_object(out, "host", std::move(host));

  Runtime defaults = default_runtime(job.runtime.framework);
  defaults.framework = Framework::transformers;
  json runtime = write_fields(settings::runtime_section, job.runtime, defaults);
  if (runtime.value("kernels", "-").empty()) runtime["kernels"] = write_kernels(job.runtime.kernels);
  put_object(out, "runtime", std::move(runtime));
  put_object(out, "calibration", write_fields(settings::calibration_section, job.calibration));
  put_object(out, "cost", write_fields(settings::cost_section, job.cost));
  return out.dump(-1, ' ', false, json::error_handler_t::replace);
}

}  // namespace oometer
