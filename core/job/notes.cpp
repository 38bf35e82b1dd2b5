#include "job/notes.h"

#include <algorithm>
#include <string_view>

#include "train/step.h"

namespace oometer {

std::string gibibytes(std::int64_t bytes) {
  const std::int64_t tenths = (bytes / 512 * 10 + (1 << 20)) >> 21;
  return std::to_string(tenths / 10) + "." + std::to_string(tenths % 10) + " GiB";
}

namespace {

/// Adapters save parameters, gradients and optimizer states, and can cost more in activations than that: what they
/// keep for backward, where it is a tenth of the peak or more.
std::string activations_of_adapters(const Job& job, const Log& log, const Report& report) {
  const LoraConfig& lora = *job.training.lora;
  std::int64_t layers = 0, bytes = 0;
  for (ModuleId module = 1; module < log.modules.size(); ++module) {
    layers += log.modules[module].type == std::string_view("lora.Linear");
    if (std::string_view(log.modules[module].name).starts_with("lora_"))
      bytes += report.modules[module][Factor::activations];
  }
  if (bytes < report.peak.allocated / 10) return {};
  const bool half = job.training.precision == Precision::bf16 || job.training.precision == Precision::fp16;
  const bool casts = half && std::any_of(log.storages.begin(), log.storages.end(), [&](const StorageRecord& storage) {
                       return storage.role == Role::parameter && storage.dtype == DType::float32 &&
                              storage.free_event == kNever &&
                              std::string_view(log.modules[storage.module].name).starts_with("lora_");
                     });
  std::string text = "LoRA: the adapters of " + std::to_string(layers) + " layers keep " + gibibytes(bytes) +
                     " of activations at the peak. Each saves its own copy of its input";
  text += casts ? " in fp32 (4 bytes per element)" : "";
  text += lora.dropout > 0 ? " after dropout, and the dropout mask (1 byte per element)" : "";
  text += "; layers without adapters share one saved input. ";
  text +=
      job.training.checkpointing.mode == CheckpointMode::none
          ? "LoRA can therefore need more memory than full fine-tuning. With activation checkpointing only those of "
            "one block are kept at a time"
          : "They belong to one block: checkpointing has freed those of the others";
  return text + (lora.dropout > 0 ? ". With a dropout of 0 there are no masks." : ".");
}

/// Why a frozen vision tower costs as much as it does, or next to nothing. None where it has not seen an image.
std::string frozen_tower(const Job& job, const Log& log, const Report& report) {
  const auto sees = [&](const StorageRecord& storage) {
    return storage.role == Role::tensor && log.modules[storage.module].modality == Modality::vision;
  };
  const auto tower = std::find_if(log.modules.begin(), log.modules.end(), [](const ModuleRecord& module) {
    return module.modality == Modality::vision && *module.name != '\0';
  });
  if (tower == log.modules.end() || std::none_of(log.storages.begin(), log.storages.end(), sees)) return {};
  std::string text = "The vision tower (" + std::string(tower->name) + ") is frozen and ";
  if (!job.training.components.no_grad.empty())
    return text + "runs under no_grad: what its layers compute is freed as soon as it has been used.";
  const CheckpointingConfig& checkpointing = job.training.checkpointing;
  const bool hooks = checkpointing.mode != CheckpointMode::none || checkpointing.input_require_grads;
  const std::int64_t bytes = report.modules[static_cast<std::size_t>(tower - log.modules.begin())][Factor::activations];
  if (bytes < report.peak.allocated / 100)
    return text + "keeps next to nothing " + (hooks ? "at the peak." : "for backward: nothing before it trains.");
  text += "yet keeps " + gibibytes(bytes) + " of activations at the peak: ";
  text += hooks ? "enable_input_require_grads() makes what its embeddings give want gradients"
                : "something before it trains";
  return text + ", so that backward goes through it. Under no_grad it would keep none.";
}

/// The most elements that one module has of its own (model_to_params).
std::int64_t largest_layer(const Log& log, const Report& report) {
  std::vector<std::int64_t> own = report.parameter_count;
  for (ModuleId module = 1; module < log.modules.size(); ++module)
    own[log.modules[module].parent] -= report.parameter_count[module];
  std::int64_t largest = 0;
  for (const std::int64_t numel : own) largest = std::max(largest, numel);
  return largest;
}

/// The estimate that people start from, beside what is here, and why they differ.
std::string estimate_of_states(const Job& job, const Log& log, const Report& report, const ReportInput& input) {
  const DeepSpeedConfig& config = job.parallel.deepspeed;
  const std::int64_t gpus = job.parallel.world_size();
  const bool offloads = config.offloads_optimizer(), third = config.zero_stage == 3;
  const std::int64_t states = report.breakdown[Factor::parameters] + report.breakdown[Factor::gradients] +
                              report.breakdown[Factor::optimizer_states];
  std::string text = std::string("DeepSpeed's estimate_zero") + (third ? "3" : "2") + "_model_states_mem_needs gives " +
                     gibibytes(deepspeed_estimate(config, input.parameters, largest_layer(log, report), gpus)) +
                     " of model states per GPU; at this peak they take " + gibibytes(states) + ".";
  // Of 18 bytes a parameter, a frozen one has 2, whole below stage 3.
  if (const std::int64_t frozen = input.parameters - input.trainable; frozen > 0 && !offloads)
    text += " It assumes that every parameter is trained, which adds " +
            gibibytes((third ? 16 : 18) * (frozen / gpus)) + " for the frozen ones.";
  if (!offloads)
    text +=
        third
            ? " It counts fp32 gradients, which exist only during the optimizer step, and omits the 16-bit partitions."
            : " It counts 16-bit and 32-bit gradients together, although they do not exist at the same time.";
  if (!config.contiguous_gradients && !offloads) return text;
  const std::int64_t element = element_size(weight_dtype(job.training.precision));
  const std::int64_t bucket = config.reduce_bucket_size * element * (config.overlap_comm && !third ? 2 : 1);
  text += " It omits reduce buckets";
  if (bucket >= (std::int64_t{1} << 30) / 20) text += " of " + gibibytes(bucket);
  if (third)
    text += " and prefetched layers";
  else if (offloads)
    text += " and a gradient buffer the size of the largest parameter";
  return text + ".";
}

/// Unified memory is neither the GPU's nor the host's alone.
[[gnu::noinline]] std::string paged_states(std::int64_t host_bytes) {
  return "Paged optimizer: " + gibibytes(host_bytes) +
         " of states are in unified memory, counted here as host memory. During the optimizer step they are paged into "
         "free GPU memory and evicted when something else needs it: without enough free memory the step gets slower, "
         "but does not fail.";
}

}  // namespace

std::int64_t deepspeed_estimate(const DeepSpeedConfig& config, std::int64_t parameters, std::int64_t largest_layer,
                                std::int64_t gpus) {
  const bool offloads = config.offloads_optimizer();
  if (config.zero_stage < 3) return 2 * parameters + (offloads ? 0 : 18 * parameters / gpus);
  if (!offloads) return 4 * largest_layer + 18 * parameters / gpus;
  return 4 * largest_layer + (config.offload_param != OffloadDevice::none ? 0 : 2 * parameters / gpus);
}

std::vector<std::string> explain(const Job& job, const Simulation& simulation, const Report& report,
                                 const ReportInput& input) {
  const Log& log = simulation.log;
  std::vector<std::string> notes;
  if (job.task == Task::train && !simulation.trains_vision)
    if (std::string text = frozen_tower(job, log, report); !text.empty()) notes.push_back(std::move(text));
  if (job.training.lora)
    if (std::string text = activations_of_adapters(job, log, report); !text.empty()) notes.push_back(std::move(text));
  if (job.training.optimizer.paged && input.host_bytes > 0) notes.push_back(paged_states(input.host_bytes));
  if (job.parallel.strategy == Strategy::deepspeed) notes.push_back(estimate_of_states(job, log, report, input));
  return notes;
}

}  // namespace oometer
