#include "advice/changes.h"

#include <algorithm>
#include <string_view>

#include "config/reader.h"
#include "job/catalogue.h"
#include "sort_by.h"

namespace oometer {

using nlohmann::json;

namespace {

// --- changes that are the same for every job that they apply to: a row each ------------------------------------------

struct Row {
  Price price;
  std::string_view of;  ///< rows that change the same thing stand together, the mildest first
  const char* label;
  const char* costs;
  const char* patch;
  bool (*applies)(const Job& job);
};

bool is_amp(const Job& job) {
  return job.training.precision == Precision::amp_bf16 || job.training.precision == Precision::amp_fp16;
}

constexpr Row kRows[] = {
    {Price::nothing, "attention", "SDPA attention", "no cost: same computation in a fused kernel; rounding may differ",
     R"({"training": {"attention": "sdpa"}})",
     [](const Job& job) {
       return job.training.attention == AttentionKind::eager || job.training.attention == AttentionKind::sdpa_math;
     }},
    {Price::nothing, "optimizer", "Fused optimizer", "no cost: same update in one kernel",
     R"({"training": {"optimizer": {"implementation": "fused"}}})",
     [](const Job& job) { return job.training.optimizer.implementation == OptimizerImplementation::foreach_; }},
    {Price::nothing, "DDP's gradients", "Gradients as views of DDP's buckets",
     "no cost: gradient_as_bucket_view of DistributedDataParallel",
     R"({"parallel": {"ddp": {"gradient_as_bucket_view": true}}})",
     [](const Job& job) {
       return job.parallel.strategy == Strategy::ddp && !job.parallel.ddp.gradient_as_bucket_view;
     }},
    {Price::nothing, "allocator", "Expandable segments",
     "no cost: set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True", R"({"runtime": {"expandable_segments": true}})",
     [](const Job& job) { return !job.runtime.expandable_segments; }},
    {Price::time, "checkpointing", "Activation checkpointing",
     "slower: each block's forward runs again during backward",
     R"({"training": {"activation_checkpointing": "non-reentrant"}})",
     [](const Job& job) {
       const CheckpointingConfig& now = job.training.checkpointing;
       return now.mode == CheckpointMode::none || now.every > 1 || !now.segments.empty();
     }},
    {Price::nothing, "liger", "Liger kernels",
     "no cost: same computation in fused kernels; rounding may differ; needs liger-kernel",
     R"({"training": {"liger": true}})", [](const Job& job) { return job.training.liger == LigerConfig{}; }},
    {Price::numerics, "optimizer's bits", "8-bit AdamW",
     "precision: moments are quantized to 8 bits in blocks of 256; needs bitsandbytes",
     R"({"training": {"optimizer": {"implementation": "bnb-8bit"}}})",
     [](const Job& job) {
       return job.training.optimizer.name != OptimizerName::sgd &&
              job.training.optimizer.implementation != OptimizerImplementation::bnb_8bit;
     }},
    {Price::time, "checkpoints' place", "Checkpoints in host memory",
     "slower: each block's input is copied to pinned host memory and back",
     R"({"training": {"activation_checkpointing": {"mode": "non-reentrant", "offload": true}}})",
     [](const Job& job) {
       return job.training.checkpointing.mode != CheckpointMode::none && !job.training.checkpointing.offload;
     }},
    {Price::time, "padding", "Pad to a multiple of 64",
     "slower: a little more padding; micro-batches have fewer different lengths (pad_to_multiple_of)",
     R"({"data": {"padding": 64}})",
     [](const Job& job) {
       return job.samples.packed.empty() && job.samples.are_given() && job.samples.padding == Padding::longest;
     }},
    {Price::numerics, "precision", "Autocast to bf16", "precision: matrix products and attention run in bf16",
     R"({"training": {"precision": "amp-bf16"}})",
     [](const Job& job) { return job.training.precision == Precision::fp32; }},
    {Price::numerics, "precision", "Pure bf16",
     "precision: weights and optimizer states are bf16 too, so small updates are lost; training can be less stable",
     R"({"training": {"precision": "bf16"}})",
     [](const Job& job) {
       return (job.training.precision == Precision::fp32 || is_amp(job)) &&
              job.parallel.strategy != Strategy::deepspeed;
     }},
    {Price::numerics, "precision", "Pure bf16",
     "precision: weights and gradients are bf16; DeepSpeed keeps float32 master weights",
     R"({"training": {"precision": "bf16"}})",
     [](const Job& job) {
       return (job.training.precision == Precision::fp32 || is_amp(job)) &&
              job.parallel.strategy == Strategy::deepspeed;
     }},
    {Price::training, "stage", "Freeze the vision tower", "different training: the vision tower is not trained",
     R"({"training": {"stage": "finetune"}})",
     [](const Job& job) { return job.training.stage == Stage::full && !job.model.config.traits().projector.empty(); }},
    {Price::training, "optimizer's name", "SGD instead of Adam",
     "different training: no moments; needs another learning rate, and transformers often train worse",
     R"({"training": {"optimizer": {"name": "sgd"}}})",
     [](const Job& job) { return job.training.optimizer.name != OptimizerName::sgd; }},
};

// --- changes by steps, which depend on the job -----------------------------------------------------------------------

/// A patch that puts `value` at /section/key.
json patch_of(const char* section, const char* key, json value) {
  json patch = json::object();
  patch[section][key] = std::move(value);
  return patch;
}

/// Adds the removal of a key that stands in the way, where the job has it.
void remove(json& patch, const json& document, const char* section, const char* key) {
  const auto found = document.find(section);
  if (found != document.end() && found->is_object() && found->contains(key)) patch[section][key] = nullptr;
}

/// Micro-batches of a half, a quarter ... as far as the product can be kept by accumulation.
Choice accumulation(const Job& job, const json&) {
  const bool contrastive = job.model.config.traits().contrastive;
  Choice choice{contrastive ? Price::training : Price::time, {}, Tell::enough};
  const std::string costs = contrastive
                                ? "different training: the contrastive loss compares fewer samples with each other"
                                : "slower: more, smaller forward and backward passes per optimizer step";
  std::int64_t batch = job.data.micro_batch_size;
  std::int64_t steps = job.training.gradient_accumulation_steps;
  while (batch % 2 == 0) {
    batch /= 2;
    steps *= 2;
    json patch = patch_of("data", "micro_batch_size", batch);
    patch["training"]["gradient_accumulation_steps"] = steps;
    choice.changes.push_back(
        {"Micro-batch " + std::to_string(batch) + ", accumulated over " + std::to_string(steps) + " steps", costs,
         std::move(patch)});
  }
  return choice;
}

/// ZeRO-2 over as many GPUs as there are, where they hold everything each, and over more.
Choice zero2(const Job& job, const json& document) {
  Choice choice{Price::hardware, {}, Tell::enough};
  const ParallelConfig& now = job.parallel;
  const bool shards = now.strategy == Strategy::deepspeed;
  if (!shards && now.strategy != Strategy::none && now.strategy != Strategy::ddp) return choice;
  const auto add = [&](std::int64_t gpus, const std::string& costs) {
    json patch = patch_of("parallel", "data", gpus);
    if (!shards) {
      patch["parallel"]["strategy"] = "deepspeed";
      patch["parallel"]["zero_stage"] = 2;
      remove(patch, document, "parallel", "ddp");
    }
    remove(patch, document, "gpu", "count");
    choice.changes.push_back({"ZeRO-2 over " + std::to_string(gpus) + " GPUs", costs, std::move(patch)});
  };
  if (now.strategy == Strategy::ddp && now.data > 1) {
    choice.price = Price::time;
    add(now.data, "setup: DeepSpeed instead of DDP; about the same communication");
  }
  for (const std::int64_t gpus : {2, 4, 8}) {
    if (gpus > now.data) add(gpus, std::to_string(gpus) + " GPUs: more communication; larger global batch");
  }
  return choice;
}

/// LoRA on the language model, as the page's own settings write it: for a model with a projector LLaVA's recipe
/// (scripts/v1_5/finetune_lora.sh), which trains that in full.
Choice lora(const Job& job, const json&) {
  Choice choice{Price::training, {}, Tell::each};
  const ModelTraits& traits = job.model.config.traits();
  const bool whole = job.training.stage == Stage::full;
  const bool has_adapters = job.training.lora || job.training.ia3;
  if (has_adapters || !traits.takes_text || (!whole && job.training.stage != Stage::finetune)) return choice;
  const bool recipe = traits.takes_images && !whole;
  const auto add = [&](const char* label, const char* names) {
    json patch = patch_of(
        "training", "lora",
        {{"rank", 16},
         {"alpha", 32},
         {"dropout", 0},
         {"target_modules", (recipe ? std::string("(?!.*") + traits.tower + ").*\\.(" : ".*\\.(") + names + ")"}});
    if (recipe) patch["training"]["lora"]["also_train"] = {traits.projector};
    choice.changes.push_back({label, "different training: trains adapters only; quality may differ", std::move(patch)});
  };
  add("LoRA on every linear layer, rank 16",
      "q_proj|k_proj|v_proj|o_proj|out_proj|gate_proj|up_proj|down_proj|fc1|fc2");
  add("LoRA on query and value projections, rank 16", "q_proj|v_proj");
  return choice;
}

Choice qlora(const Job& job, const json&) {
  Choice choice{Price::numerics, {}, Tell::each};
  if (!job.training.lora || job.training.quantization) return choice;
  choice.changes.push_back({"QLoRA",
                            "precision and time: frozen weights are quantized to 4 bits and dequantized for each "
                            "product; needs bitsandbytes",
                            patch_of("training", "quantization",
                                     {{"load_in_4bit", true},
                                      {"bnb_4bit_quant_type", "nf4"},
                                      {"bnb_4bit_use_double_quant", true},
                                      {"bnb_4bit_compute_dtype", "bfloat16"},
                                      {"llm_int8_skip_modules", job.model.config.traits().quantization_skips}})});
  return choice;
}

Choice larger_gpu(const Job& job, const json& document) {
  std::vector<Gpu> gpus = gpu_catalogue();
  sort_by(gpus, [](const Gpu& gpu) { return gpu.usable_bytes; });
  Choice choice{Price::hardware, {}, Tell::fitting};
  for (const Gpu& gpu : gpus) {
    if (gpu.usable_bytes <= job.gpu.usable_bytes || gpu.vendor != job.gpu.vendor) continue;
    json patch = patch_of("gpu", "name", gpu.id);
    remove(patch, document, "gpu", "usable_bytes");
    remove(patch, document, "gpu", "compute_capability");
    choice.changes.push_back({"Larger GPU: " + gpu.name, "different hardware", std::move(patch)});
  }
  return choice;
}

constexpr Choice (*kSteps[])(const Job& job, const json& document) = {accumulation, zero2, lora, qlora, larger_gpu};

}  // namespace

std::vector<Choice> possible_changes(const Job& job, const json& document) {
  std::vector<Choice> choices;
  for (const auto steps : kSteps) {
    if (Choice choice = steps(job, document); !choice.changes.empty()) choices.push_back(std::move(choice));
  }
  std::string_view last;
  for (const Row& row : kRows) {
    if (!row.applies(job)) continue;
    if (row.of != last) choices.push_back({row.price});
    last = row.of;
    choices.back().changes.push_back({row.label, row.costs, *parse_json(row.patch)});
  }
  sort_by(choices, [](const Choice& choice) { return choice.price; });
  return choices;
}

}  // namespace oometer
