#include "job/notes.h"

#include <string_view>

namespace oometer {

namespace {

std::string gibibytes(std::int64_t bytes) {
  const std::int64_t tenths = (bytes / 512 * 10 + (1 << 20)) >> 21;
  return std::to_string(tenths / 10) + "." + std::to_string(tenths % 10) + " GiB";
}

/// Adapters save parameters, gradients and optimizer states, and can cost more in activations than that: what they
/// keep for backward, where it is a tenth of the peak or more.
std::string activations_of_adapters(const Job& job, const Log& log, const Report& report) {
  const LoraConfig& lora = *job.training.lora;
  std::int64_t layers = 0, bytes = 0;
  bool casts = false;
  for (ModuleId module = 1; module < log.modules.size(); ++module) {
    layers += log.modules[module].type == std::string_view("lora.Linear");
    if (std::string_view(log.modules[module].name).starts_with("lora_"))
      bytes += report.modules[module][Factor::activations];
  }
  for (const StorageRecord& storage : log.storages)
    casts =
        casts || (storage.role == Role::parameter && storage.dtype == DType::float32 && storage.free_event == kNever &&
                  std::string_view(log.modules[storage.module].name).starts_with("lora_"));
  if (bytes < report.peak.allocated / 10) return {};
  const bool half = job.training.precision == Precision::bf16 || job.training.precision == Precision::fp16;
  std::string text = "LoRA: the adapters of " + std::to_string(layers) + " layers keep " + gibibytes(bytes) +
                     " of activations at the peak. Each keeps a copy of its own input";
  text += half && casts ? " in fp32, 4 bytes an element" : "";
  text += lora.dropout > 0 ? ", behind dropout, and dropout's mask, 1 byte an element" : "";
  text += "; layers that train without adapters share one input between them. ";
  text += job.training.checkpointing.mode == CheckpointMode::none
              ? "So LoRA can need more memory than training every weight. Activation checkpointing keeps them for one "
                "block at a time"
              : "They are of one block: checkpointing has let go of the others'";
  return text + (lora.dropout > 0 ? "; a dropout of 0 spares the masks." : ".");
}

/// Unified memory is neither the GPU's nor the host's alone.
std::string paged_states(std::int64_t host_bytes) {
  return "Paged optimizer: " + gibibytes(host_bytes) +
         " of states are in unified memory, which this answer counts as the host's. They come onto the GPU page by "
         "page "
         "when the optimizer steps, into what is free there, and leave when something else asks for the room: a step "
         "that lacks room gets slower and does not fail.";
}

}  // namespace

std::vector<std::string> explain(const Job& job, const Log& log, const Report& report, std::int64_t host_bytes) {
  std::vector<std::string> notes;
  if (job.training.lora)
    if (std::string text = activations_of_adapters(job, log, report); !text.empty()) notes.push_back(std::move(text));
  if (job.training.optimizer.paged && host_bytes > 0) notes.push_back(paged_states(host_bytes));
  return notes;
}

}  // namespace oometer
