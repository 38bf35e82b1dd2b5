#include "advice/changes.h"

#include <algorithm>

#include "job/catalogue.h"

namespace oometer {

using nlohmann::json;

namespace {

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

Choice switches(const Job& job, int which) {
  const TrainingConfig& training = job.training;
  if (which == 0 && (training.attention == AttentionKind::eager || training.attention == AttentionKind::sdpa_math))
    return {{{"SDPA attention", "nothing but rounding: the same mathematics in a fused kernel",
              patch_of("training", "attention", "sdpa")}}};
  if (which == 1 && training.optimizer.implementation == OptimizerImplementation::foreach_) {
    json patch = json::object();
    patch["training"]["optimizer"]["implementation"] = "fused";
    return {{{"Fused optimizer", "nothing: the same update in one kernel", std::move(patch)}}};
  }
  if (which == 2 && !job.runtime.expandable_segments)
    return {{{"Expandable segments", "an environment variable: PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
              patch_of("runtime", "expandable_segments", true)}}};
  return {};
}

/// Micro-batches of a half, a quarter ... as far as the product can be kept by accumulation.
Choice accumulation(const Job& job) {
  const bool contrastive = std::holds_alternative<ClipConfig>(job.model.config);
  const std::string costs = contrastive
                                ? "another training: the contrastive loss compares fewer samples with each other"
                                : "some time: smaller, more forward and backward passes for each optimizer step";
  Choice choice;
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

Choice checkpointing(const Job& job) {
  const CheckpointingConfig& now = job.training.checkpointing;
  if (now.mode != CheckpointMode::none && now.every == 1) return {};
  return {{{"Activation checkpointing", "time: each block's forward runs a second time in the backward pass",
            patch_of("training", "activation_checkpointing", "non-reentrant")}}};
}

Choice precision(const Job& job) {
  const Precision now = job.training.precision;
  const bool deepspeed = job.parallel.strategy == Strategy::deepspeed;
  Choice choice;
  if (now == Precision::fp32)
    choice.changes.push_back({"Autocast to bf16", "numerics: matrix products and attention are rounded to bf16",
                              patch_of("training", "precision", "amp-bf16")});
  if (now == Precision::fp32 || now == Precision::amp_bf16 || now == Precision::amp_fp16)
    choice.changes.push_back(
        {"Pure bf16",
         deepspeed ? "numerics: weights and gradients are rounded to bf16; DeepSpeed keeps a float32 copy"
                   : "numerics: weights and optimizer states are rounded to bf16 too, small updates are "
                     "lost; training can be less stable",
         patch_of("training", "precision", "bf16")});
  return choice;
}

Choice more_gpus(const Job& job, const json& document) {
  if (job.parallel.strategy != Strategy::none && job.parallel.strategy != Strategy::deepspeed) return {};
  Choice choice;
  for (const std::int64_t gpus : {2, 4, 8}) {
    if (gpus <= job.parallel.data) continue;
    json patch = patch_of("parallel", "data", gpus);
    if (job.parallel.strategy == Strategy::none) {
      patch["parallel"]["strategy"] = "deepspeed";
      patch["parallel"]["zero_stage"] = 2;
    }
    remove(patch, document, "gpu", "count");
    const std::string number = std::to_string(gpus);
    choice.changes.push_back({"ZeRO-2 over " + number + " GPUs",
                              number + " GPUs and the traffic between them; each step sees the samples of all of them",
                              std::move(patch)});
  }
  return choice;
}

Choice larger_gpu(const Job& job, const json& document) {
  std::vector<Gpu> gpus = gpu_catalogue();
  std::stable_sort(gpus.begin(), gpus.end(),
                   [](const Gpu& a, const Gpu& b) { return a.usable_bytes < b.usable_bytes; });
  Choice choice;
  choice.first_that_fits = true;
  for (const Gpu& gpu : gpus) {
    if (gpu.usable_bytes <= job.gpu.usable_bytes || gpu.vendor != job.gpu.vendor) continue;
    json patch = patch_of("gpu", "name", gpu.id);
    remove(patch, document, "gpu", "usable_bytes");
    remove(patch, document, "gpu", "compute_capability");
    choice.changes.push_back({"A larger GPU: " + gpu.name, "other hardware", std::move(patch)});
  }
  return choice;
}

Choice frozen_tower(const Job& job) {
  const ModelTraits traits = model_traits(job.model.config);
  if (job.training.stage != Stage::full || !traits.takes_images || !traits.has_projector) return {};
  return {{{"Vision tower frozen", "another training: the vision tower learns nothing",
            patch_of("training", "stage", "finetune")}}};
}

Choice sgd(const Job& job) {
  if (job.training.optimizer.name == OptimizerName::sgd) return {};
  json patch = json::object();
  patch["training"]["optimizer"]["name"] = "sgd";
  return {{{"SGD instead of Adam",
            "another training: no moments, so another learning rate, and transformers often train worse",
            std::move(patch)}}};
}

}  // namespace

std::vector<Choice> possible_changes(const Job& job, const json& document) {
  const bool contrastive = std::holds_alternative<ClipConfig>(job.model.config);
  std::vector<Choice> choices = {switches(job, 0), switches(job, 1), switches(job, 2)};
  if (!contrastive) choices.push_back(accumulation(job));
  choices.push_back(checkpointing(job));
  choices.push_back(precision(job));
  choices.push_back(more_gpus(job, document));
  choices.push_back(larger_gpu(job, document));
  if (contrastive) choices.push_back(accumulation(job));
  choices.push_back(frozen_tower(job));
  choices.push_back(sgd(job));
  choices.erase(
      std::remove_if(choices.begin(), choices.end(), [](const Choice& choice) { return choice.changes.empty(); }),
      choices.end());
  return choices;
}

}  // namespace oometer
