#include "cli/options.h"

#include <algorithm>
#include <fstream>
#include <iostream>
#include <iterator>
#include <stdexcept>
#include <string_view>

namespace oometer::cli {

using Json = nlohmann::json;

/// How the text of an option becomes JSON. A value that is not what the key wants stays text: the core then names the
/// key, what it found and what would be right, for files and options alike.
enum class Kind {
  text,   ///< always a string: "2.15" is a version, not a number
  value,  ///< JSON where it is valid JSON (8, 1.0, null, ["lm_head"], {"rank": 8}), else a string
  flag,   ///< `--key` alone means true
};

struct Key {
  const char* option;
  const char* pointer;
  Kind kind;
  const char* help;
};

namespace {

constexpr Key kKeys[] = {
    {"--preset", "/model/preset", Kind::text, "a model of `oometer presets`"},
    {"--task", "/task", Kind::text, "train or inference"},
    {"--new-tokens", "/inference/new_tokens", Kind::value, "of inference: tokens of each answer"},
    {"--turns", "/inference/turns", Kind::value, "of inference: prompts and answers, the cache kept"},
    {"--turn-tokens", "/inference/turn_tokens", Kind::value, "of inference: tokens of each prompt after the first"},
    {"--turn-images", "/inference/turn_images", Kind::value, "of inference: images of each prompt after the first"},
    {"--prefill-chunk-size", "/inference/prefill_chunk_size", Kind::value,
     "of inference: tokens of a prompt that are run at once"},
    {"--logits", "/inference/logits", Kind::text, "of inference: last or all"},
    {"--cache", "/inference/cache/implementation", Kind::text,
     "of inference: dynamic, static, offloaded, headinfer, mtla, quantized or paged (vLLM)"},
    {"--cache-backend", "/inference/cache/backend", Kind::text, "of a quantized cache: quanto, hqq or fp8"},
    {"--cache-nbits", "/inference/cache/nbits", Kind::value, "of a quantized cache: bits of an element, 4"},
    {"--cache-axis-key", "/inference/cache/axis_key", Kind::value, "of a quantized cache: 0 or -1 (hqq: 1)"},
    {"--cache-axis-value", "/inference/cache/axis_value", Kind::value, "of a quantized cache: 0 or -1 (hqq: 1)"},
    {"--cache-q-group-size", "/inference/cache/q_group_size", Kind::value,
     "of a quantized cache: elements that share a scale, 64"},
    {"--cache-residual-length", "/inference/cache/residual_length", Kind::value,
     "of a quantized cache: tokens that may wait in full precision, 128"},
    {"--gpu-memory-utilization", "/inference/cache/gpu_memory_utilization", Kind::value,
     "of a paged cache: vLLM's share of the GPU, 0.9"},
    {"--micro-batch-size", "/data/micro_batch_size", Kind::value, "samples per forward, per replica"},
    {"--sequence-length", "/data/sequence_length", Kind::value,
     "tokens the language model sees, image tokens included"},
    {"--target-length", "/data/target_length", Kind::value, "decoder tokens of encoder-decoder models"},
    {"--images-per-sample", "/data/images_per_sample", Kind::value, "images in each sample"},
    {"--tiles", "/data/tiles", Kind::value, "tiles of each image"},
    {"--image-size", "/data/image_size", Kind::value, "[height, width] in pixels, before tiling"},
    {"--frames", "/data/frames", Kind::value, "frames of each video (Qwen-VL)"},
    {"--stage", "/training/stage", Kind::text, "pretrain, finetune, full or custom"},
    {"--freeze", "/training/freeze", Kind::value, "name components that do not train, as a JSON list"},
    {"--train-only", "/training/train_only", Kind::value, "name components that alone train, as a JSON list"},
    {"--precision", "/training/precision", Kind::text, "fp32, bf16, fp16, amp-bf16 or amp-fp16"},
    {"--optimizer", "/training/optimizer/name", Kind::text, "adamw, adam or sgd"},
    {"--optimizer-implementation", "/training/optimizer/implementation", Kind::text,
     "foreach, fused, for-loop, bnb-8bit or bnb-32bit"},
    {"--paged", "/training/optimizer/paged", Kind::flag, "of bnb-8bit and bnb-32bit: states in unified memory"},
    {"--momentum", "/training/optimizer/momentum", Kind::value, "of sgd"},
    {"--attention", "/training/attention", Kind::text, "eager, sdpa, or sdpa-flash, -efficient, -math, -cudnn"},
    {"--activation-checkpointing", "/training/activation_checkpointing", Kind::value,
     "none, non-reentrant or reentrant, or as JSON {\"mode\": ..., \"every\": 2} or {\"segments\": {STACK: [[0, 4], "
     "8]}}"},
    {"--gradient-accumulation-steps", "/training/gradient_accumulation_steps", Kind::value,
     "forwards per optimizer step"},
    {"--max-grad-norm", "/training/max_grad_norm", Kind::value, "clip the gradients' norm"},
    {"--keep-outputs", "/training/keep_outputs", Kind::flag, "the loop holds the outputs until the step is over"},
    {"--lora-rank", "/training/lora/rank", Kind::value, "LoRA: the adapters' rank; any --lora option turns LoRA on"},
    {"--lora-alpha", "/training/lora/alpha", Kind::value, "LoRA: alpha; changes no memory"},
    {"--lora-dropout", "/training/lora/dropout", Kind::value, "LoRA: dropout on the adapters' input"},
    {"--lora-bias", "/training/lora/bias", Kind::text, "LoRA: which biases train: none, all or lora_only"},
    {"--lora-target-modules", "/training/lora/target_modules", Kind::value,
     "LoRA: a JSON list of names, a regular expression, or all-linear"},
    {"--lora-modules-to-save", "/training/lora/modules_to_save", Kind::value,
     "LoRA: a JSON list of modules that train in full"},
    {"--lora-also-train", "/training/lora/also_train", Kind::value,
     "LoRA: a JSON list of components that train in full, without a copy"},
    {"--lora-use-dora", "/training/lora/use_dora", Kind::flag, "LoRA: DoRA"},
    {"--lora-autocast-adapter-dtype", "/training/lora/autocast_adapter_dtype", Kind::flag,
     "LoRA: adapters are fp32 (--lora-autocast-adapter-dtype false: the weights' type)"},
    {"--ia3-target-modules", "/training/ia3/target_modules", Kind::value, "(IA)^3: as --lora-target-modules"},
    {"--ia3-feedforward-modules", "/training/ia3/feedforward_modules", Kind::value,
     "(IA)^3: those whose input is scaled"},
    {"--ia3-also-train", "/training/ia3/also_train", Kind::value, "(IA)^3: as --lora-also-train"},
    {"--ia3-autocast-adapter-dtype", "/training/ia3/autocast_adapter_dtype", Kind::flag,
     "(IA)^3: as --lora-autocast-adapter-dtype"},
    {"--quantization", "/training/quantization", Kind::value, "QLoRA: a BitsAndBytesConfig, as JSON"},
    {"--save-on-cpu", "/training/save_on_cpu", Kind::text,
     "none, pageable or pinned: what is saved for backward, in host memory"},
    {"--liger", "/training/liger", Kind::flag, "liger-kernel's kernels, or which, as JSON: {\"swiglu\": false}"},
    {"--chunked-cross-entropy", "/training/chunked_cross_entropy", Kind::value,
     "into how many chunks of the sequence the loss is cut, of which one at a time is fp32"},
    {"--loss", "/training/loss", Kind::value, "the output whose mean is the loss, if not the model's own"},
    {"--strategy", "/parallel/strategy", Kind::text, "none, ddp, deepspeed, fsdp1 or fsdp2"},
    {"--data-parallel", "/parallel/data", Kind::value, "replicas"},
    {"--zero-stage", "/parallel/zero_stage", Kind::value, "DeepSpeed's ZeRO stage"},
    {"--rank", "/parallel/rank", Kind::value, "the rank to look at, if not the one that likely needs most; or all"},
    {"--ddp", "/parallel/ddp", Kind::value, "options of DistributedDataParallel, as JSON"},
    {"--fsdp", "/parallel/fsdp", Kind::value, "options of FSDP2, as JSON"},
    {"--gpu", "/gpu/name", Kind::text, "a GPU of `oometer presets`"},
    {"--usable-bytes", "/gpu/usable_bytes", Kind::value, "what the allocator may take, instead of a GPU's name"},
    {"--compute-capability", "/gpu/compute_capability", Kind::text, "beside --usable-bytes: 9.0"},
    {"--framework", "/runtime/framework", Kind::text, "transformers or llava"},
    {"--torch", "/runtime/torch", Kind::text, "version of PyTorch: 2.15"},
    {"--transformers", "/runtime/transformers", Kind::text, "version of transformers: 5.23"},
    {"--deepspeed", "/runtime/deepspeed", Kind::text, "version of DeepSpeed: 0.19.8"},
    {"--peft", "/runtime/peft", Kind::text, "version of peft: 0.21.2"},
    {"--cudnn", "/runtime/cudnn", Kind::flag, "whether cuDNN is there (--cudnn false)"},
    {"--expandable-segments", "/runtime/expandable_segments", Kind::flag,
     "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"},
};

std::string read(const std::string& path) {
  if (path == "-") return {std::istreambuf_iterator<char>(std::cin), {}};
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error(path + ": cannot be read");
  return {std::istreambuf_iterator<char>(file), {}};
}

/// The value of a text, or a discarded one where it is not JSON, or nested deeper than any job is.
Json parse(const std::string& text) {
  bool too_deep = false;
  const auto watch = [&](int depth, Json::parse_event_t, Json&) { return !(too_deep |= depth > 64); };
  Json value = Json::parse(text, watch, false);
  return too_deep ? Json(Json::value_t::discarded) : value;
}

Json read_json(const std::string& path, const char* advice = "") {
  Json value = parse(read(path));
  if (value.is_discarded()) throw std::runtime_error(path + ": not valid JSON" + advice);
  return value;
}

Json to_json(Kind kind, const std::string& text) {
  if (kind == Kind::text) return text;
  Json value = parse(text);
  return value.is_discarded() ? Json(text) : value;
}

/// Puts a value at a pointer; whatever stands on the way and is no object gives way ("optimizer": "adamw").
void put(Json& job, const Json::json_pointer& pointer, Json value) {
  if (!pointer.parent_pointer().empty()) {
    Json& parent = job[pointer.parent_pointer()];
    if (!parent.is_object()) parent = Json::object();
  }
  job[pointer] = std::move(value);
}

/// An option for a model or a GPU takes the place of the file's, however that one is given.
void make_room(Json& job, std::string_view option) {
  if (option == "--preset") job.erase("model");
  if (option == "--gpu") job.erase("gpu");
  if (option == "--usable-bytes" && job.contains("gpu") && job["gpu"].is_object()) job["gpu"].erase("name");
}

}  // namespace

JobOptions::JobOptions(CLI::App& command) {
  command.add_option("job", file_,
                     "a job's JSON file, - for standard input; not needed with --preset, --config or --graph");
  command.add_option("--config", config_file_, "a Hugging Face config.json as the model");
  command.add_option("--graph", graph_file_, "a file of tools/export_graph.py as the model");
  command.add_option("--ds-config", ds_config_file_,
                     "a DeepSpeed configuration's JSON file; \"auto\" as HF Trainer means it");
  command.add_option("--accelerate-config", accelerate_config_file_,
                     "the file of `accelerate config`, as JSON; a deepspeed_config_file that it names is read too");
  for (const Key& key : kKeys) {
    Given& given = given_.emplace_back(Given{&key, "true", nullptr});
    given.option = command.add_option(key.option, given.text, key.help);
    if (key.kind == Kind::flag) given.option->expected(0, 1)->default_str("true");
  }
}

std::string JobOptions::job() const {
  const bool any =
      std::any_of(given_.begin(), given_.end(), [](const Given& given) { return given.option->count() > 0; });
  Json job = {{"version", 1}};
  if (!file_.empty()) {
    std::string text = read(file_);
    if (!any && config_file_.empty() && graph_file_.empty() && ds_config_file_.empty() &&
        accelerate_config_file_.empty())
      return text;
    job = parse(text);
    if (!job.is_object()) return text;  // the core says what is wrong with it
  }
  for (const Given& given : given_) {
    if (given.option->count() > 0) make_room(job, given.key->option);
  }
  if (!config_file_.empty()) put(job, Json::json_pointer("/model/config"), read_json(config_file_));
  if (!graph_file_.empty()) job["model"] = {{"graph", read_json(graph_file_)}};
  if (!ds_config_file_.empty() || !accelerate_config_file_.empty()) {
    // The file takes the place of what the job says of it.
    Json& parallel = job["parallel"];
    if (!parallel.is_object()) parallel = Json::object();
    for (const char* key : {"strategy", "zero_stage", "ds_config", "ddp", "fsdp", "accelerate_config"})
      parallel.erase(key);
  }
  if (!ds_config_file_.empty()) {
    put(job, Json::json_pointer("/parallel/strategy"), "deepspeed");
    put(job, Json::json_pointer("/parallel/ds_config"), read_json(ds_config_file_));
  }
  if (!accelerate_config_file_.empty()) {
    Json config = read_json(accelerate_config_file_,
                            "; accelerate writes YAML, which becomes JSON by: python -c \"import json, sys, yaml; "
                            "json.dump(yaml.safe_load(sys.stdin), sys.stdout)\"");
    const Json::json_pointer file("/deepspeed_config/deepspeed_config_file");
    if (config.contains(file) && config[file].is_string()) config[file] = read_json(config[file].get<std::string>());
    put(job, Json::json_pointer("/parallel/accelerate_config"), std::move(config));
  }
  for (const Given& given : given_) {
    if (given.option->count() > 0)
      put(job, Json::json_pointer(given.key->pointer), to_json(given.key->kind, given.text));
  }
  return job.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace oometer::cli
