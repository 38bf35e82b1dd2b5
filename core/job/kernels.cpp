#include <optional>
#include <string>

#include "job/estimate.h"
#include "job/notes.h"
#include "job/read.h"

/// What the packages of kernels (runtime.kernels) mean for a job.
namespace oometer {

Kernels missing_kernels(const Job& job) {
  const Kernels kernels = job.model.config.traits().kernels;
  return static_cast<Kernels>(static_cast<unsigned>(kernels) & ~static_cast<unsigned>(job.runtime.kernels));
}

std::string packages_of(Kernels kernels) {
  std::string names;
  for (const auto& [operation, package] :
       {std::pair{Kernels::linear_attention, "fla"}, std::pair{Kernels::mamba | Kernels::mamba2, "mamba_ssm"},
        std::pair{Kernels::causal_conv1d, "causal_conv1d"}})
    if (has(kernels, operation)) names += (names.empty() ? "" : " and ") + std::string(package);
  return names;
}

namespace {

struct Refusal {
  const char *code, *why;
};

/// Why these operations of a job's model cannot be installed kernels'; none: they can.
std::optional<Refusal> refusal_of(const Job& job, Kernels run) {
  if (has(job.model.config.traits().kernels, Kernels::mamba) && run != Kernels::torch)
    return Refusal{
        "not-modelled",
        "found installed kernels, which are not supported yet with the first Mamba's selective scan; expected "
        "torch"};
  if (has(run, Kernels::mamba2) && !has(run, Kernels::causal_conv1d))
    return Refusal{"inconsistent", "found mamba_ssm without causal_conv1d, which its kernels call; expected packages"};
  if (has(run, Kernels::mamba2) && job.training.quantization)
    return Refusal{"not-modelled",
                   "found quantization and mamba_ssm's kernels, which are not supported together yet: leave one out"};
  if (!has(run, Kernels::linear_attention)) return std::nullopt;
  if (job.gpu.vendor != Vendor::nvidia)
    return Refusal{"not-modelled",
                   "found fla on a GPU that is not NVIDIA's, which is not supported yet; expected torch"};
  // chunk_bwd_dqkwg (fla/ops/common/chunk_o.py); PyTorch 2.8 has Triton 3.4, 2.12 has 3.7.0.
  if (job.task == Task::train && job.gpu.major == 9 && job.runtime.torch >= Version{2, 8, 0} &&
      job.runtime.torch < Version{2, 13, 0})
    return Refusal{"inconsistent",
                   "found fla on a Hopper GPU with PyTorch 2.8 to 2.12, whose Triton gives wrong gradients there, so "
                   "that fla stops; expected torch 2.13 or later, or \"torch\""};
  return std::nullopt;
}

}  // namespace

void check_kernels(ConfigReader& reader, Job& job) {
  const Kernels run = job.runtime.kernels & job.model.config.traits().kernels;
  if (const auto refusal = refusal_of(job, run)) reader.object("runtime").fail("kernels", refusal->code, refusal->why);
  // use_kernel_func_from_hub_with_fallback (transformers 5.23, integrations/hub_kernels.py).
  if (job.samples.padding_free && missing_kernels(job) != Kernels::torch)
    reader.object("runtime").fail("kernels", "inconsistent",
                                  "found packed samples without the kernels of " + packages_of(missing_kernels(job)) +
                                      ", which alone keep them apart, so that transformers stops; expected packages");
  if (job.training.loop.activation_offloading && job.model.config.traits().kernels != Kernels::torch)
    reader.object("training")
        .object("loop")
        .object("args")
        .fail_found("activation_offloading", "not-modelled",
                    "it is not supported yet with linear attention, Mamba or causal convolutions");
  if (has(run, Kernels::linear_attention))
    job.unmodelled.push_back(
        {"Triton's search for the best variant of each of fla's kernels, in the first step on a machine: a buffer of "
         "256 MB, and what slow variants take outside the allocator (6.5 GB were seen on an H200)",
         Effect::more});
}

std::optional<std::string> explain_kernels(const Job& job, const Report& report) {
  constexpr double kMatters = 0.02;
  const Kernels missing = missing_kernels(job);
  if (missing == Kernels::torch || refusal_of(job, job.model.config.traits().kernels)) return std::nullopt;
  Job installed = job;
  installed.runtime.kernels = Kernels::packages;
  ReportOptions options;
  options.attribution = false;
  const Result<Estimate> other = estimate(installed, options);
  if (!other) return std::nullopt;
  const std::int64_t less = report.peak.reserved - other->report.peak.reserved;
  if (static_cast<double>(less) < kMatters * static_cast<double>(report.peak.reserved)) return std::nullopt;
  return "without " + packages_of(missing) +
         " transformers runs its own code, as here; with them installed this job reserves " + gibibytes(less) + " less";
}

void note_kernels(const Job& job, ReportInput& input) {
  const Kernels kernels = job.model.config.traits().kernels, run = job.runtime.kernels & kernels,
                missing = missing_kernels(job);
  if (run != Kernels::torch)
    input.assumptions.push_back("the kernels of " + packages_of(run) + " run, as their source allocates");
  if (missing != Kernels::torch)
    input.assumptions.push_back("transformers' own code runs where the kernels of " + packages_of(missing) +
                                " usually need less memory and time" +
                                (refusal_of(job, kernels) ? "" : ": runtime.kernels says that they are installed"));
}

}  // namespace oometer
