#include "time/step_time.h"

#include <algorithm>
#include <vector>

#include "tensor/op.h"
#include "time/kernel_time.h"

namespace oometer {

namespace {

/// What the host takes to ask for one kernel, with what Python does around it: torch 2.15 and transformers 5.23 over a
/// driver whose kernels do nothing take 0.18 s, at least, for the 6,602 of a step of SmolLM2-135M with LoRA and
/// checkpointing (2 x 512 tokens; one core of an EPYC in a cloud).
constexpr double kHostSeconds = 27e-6;

/// The kernels of forward, of backward, ...: those of the compute stream one after the other, collectives of other
/// streams beside them.
struct PhaseTime {
  void add(const Work& work, const KernelTime& kernel, double times, bool is_beside) {
    host += kHostSeconds * times;
    if (is_beside) {
      beside += kernel.seconds * times;
      if (work.kind == WorkKind::communication) collectives += times;
    } else {
      by_kind[static_cast<std::size_t>(work.kind)] += kernel.seconds * times;
    }
  }

  /// Adds itself to a step: nothing hides the first all-gather of a forward, and the last reduction of a backward.
  void end(StepTime& step, double passes) const {
    double computes = 0;
    for (const double seconds : by_kind) computes += seconds;
    const double edge = collectives > 0 ? beside / collectives * passes : 0;
    const double exposed = std::max(0.0, beside - std::max(computes, host)) + edge;
    for (std::size_t kind = 0; kind < kWorkKinds; ++kind) step.by_kind[kind] += by_kind[kind];
    step.by_kind[static_cast<std::size_t>(WorkKind::communication)] += exposed;
    step.idle += std::max(0.0, host - computes);
  }

  std::array<double, kWorkKinds> by_kind{};
  double host = 0, beside = 0, collectives = 0;
};

bool is_timed(const PhaseMark& phase, int first, int last) {
  return phase.iteration >= first && phase.iteration <= last && phase.name != PhaseName::init &&
         phase.name != PhaseName::batch && phase.name != PhaseName::evaluation && phase.name != PhaseName::saving;
}

}  // namespace

StepTime step_time(const Log& log, const GpuSpeed& gpu, std::int64_t micro_steps, bool overlaps_reduction) {
  StepTime step;
  if (log.phases.empty()) return step;
  const bool infers = log.phases.back().name == PhaseName::decode || log.phases.back().name == PhaseName::prefill;
  int last = 0;
  for (const PhaseMark& phase : log.phases) last = std::max(last, phase.iteration);
  const int first = infers ? last : std::min(2, last);
  std::vector<WorkRange> ranges;
  for (std::size_t i = 0; i < log.phases.size(); ++i) {
    if (!is_timed(log.phases[i], first, last)) continue;
    const WorkMark end = i + 1 < log.phases.size() ? log.phases[i + 1].work : log.work.mark();
    if (!ranges.empty() && ranges.back().end == log.phases[i].work)
      ranges.back().end = end;
    else
      ranges.push_back({log.phases[i].work, end});
  }
  const std::vector<std::int64_t> times = log.work.times(ranges);

  const KernelTimes kernels(gpu);
  std::array<PhaseTime, static_cast<std::size_t>(PhaseName::decode) + 1> phases{};
  std::array<double, 8> flops_of_dtype{};
  std::size_t phase = 0;
  for (std::size_t i = 0; i < times.size(); ++i) {
    while (phase + 1 < log.phases.size() && log.phases[phase + 1].work.work <= i) ++phase;
    const Work& work = log.work.works[i];
    if (times[i] == 0 || work.kind == WorkKind::none) continue;
    const PhaseName name = log.phases[phase].name;
    const auto count = static_cast<double>(times[i]);
    const KernelTime kernel = kernels.of(log.work, work);
    const bool is_beside = work.stream != kDefaultStream ||
                           (overlaps_reduction && work.kind == WorkKind::communication && name == PhaseName::backward);
    phases[static_cast<std::size_t>(name)].add(work, kernel, count, is_beside);
    if (work.kind == WorkKind::communication) step.on_links += kernel.seconds * count;
    if (!kernel.is_measured) step.unmeasured += kernel.seconds * count;
    step.work.add(log.work, work, times[i]);
    flops_of_dtype[static_cast<std::size_t>(work.dtype)] += count * static_cast<double>(log.work.product(work).flops);
  }

  const double steps = last - first + 1;
  for (std::size_t name = 0; name < phases.size(); ++name) {
    const double before = step.seconds;
    phases[name].end(step, static_cast<double>(micro_steps) * steps);
    step.seconds = step.idle;
    for (const double seconds : step.by_kind) step.seconds += seconds;
    if (static_cast<PhaseName>(name) == PhaseName::prefill) step.prefill = step.seconds - before;
    if (static_cast<PhaseName>(name) == PhaseName::decode) step.decode = step.seconds - before;
  }
  for (double* seconds : {&step.seconds, &step.idle, &step.unmeasured, &step.on_links}) *seconds /= steps;
  for (double& seconds : step.by_kind) seconds /= steps;
  for (std::int64_t* sum : {&step.work.kernels, &step.work.executed, &step.work.hardware, &step.work.model,
                            &step.work.read, &step.work.written, &step.work.sent})
    *sum /= static_cast<std::int64_t>(steps);
  const auto most = std::max_element(flops_of_dtype.begin(), flops_of_dtype.end());
  step.dtype = static_cast<DType>(most - flops_of_dtype.begin());
  step.peak_flops = peak_flops(gpu, step.dtype);
  return step;
}

}  // namespace oometer
