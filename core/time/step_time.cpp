#include "time/step_time.h"

#include <algorithm>
#include <vector>

#include "tensor/op.h"
#include "time/kernel_time.h"

namespace oometer {

namespace {

/// Seconds that the host takes to ask for one kernel, with the Python around it: of a kernel, a product (most are a
/// module's) and attention (whose queries and keys are views and its arguments many).
///
/// 31 models were run over a driver whose kernels do nothing (torch 2.15, transformers 5.23, one core of an EPYC), and
/// the CPU seconds of their forward and backward are within 7 % (median; -34 to +18 %) of 6.9, 32 and 37 us in forward,
/// 6.0, 16.3 and 43.5 us in backward, where C++ asks, and 14, of attention 60, for what a checkpointed block's kernel
/// saves: the hooks are Python's, at its first forward and at its second. Those of our steps on H100s and H200s that
/// wait for the host in a third of their time and more took 1.9 to 3.7 times as long (docs/time.md).
struct HostSeconds {
  double kernel, product, attention;
};
constexpr double kHost = 2.6 * 1e-6;
constexpr HostSeconds kForward{6.9 * kHost, 32 * kHost, 37 * kHost};
constexpr HostSeconds kBackward{6.0 * kHost, 16.3 * kHost, 43.5 * kHost};
constexpr HostSeconds kHooks{14 * kHost, 14 * kHost, 60 * kHost};
/// Where autograd records nothing: a token of Vicuna 7B's decoding took 9.6 ms of that core, where these are 15.8.
constexpr double kWithoutAutograd = 9.6 / 15.8;

double host_seconds(const Work& work, PhaseName phase) {
  const auto of = [&](const HostSeconds& its) {
    switch (work.kind) {
      case WorkKind::gemm:
      case WorkKind::convolution:
        return its.product;
      case WorkKind::attention:
        return its.attention;
      default:
        return its.kernel;
    }
  };
  if (phase == PhaseName::prefill || phase == PhaseName::decode) return of(kForward) * kWithoutAutograd;
  if (work.recomputed) return of(kForward) + of(kHooks);
  return of(phase == PhaseName::backward ? kBackward : kForward);
}

/// The kernels of forward, of backward, ...: those of the compute stream one after the other, collectives of other
/// streams beside them.
struct PhaseTime {
  void add(const Work& work, const KernelTime& kernel, double times, bool is_beside) {
    if (is_beside) {
      beside += kernel.seconds * times;
      if (work.kind == WorkKind::communication) collectives += times;
    } else {
      by_kind[static_cast<std::size_t>(work.kind)] += kernel.seconds * times;
    }
  }

  /// Adds itself to a step, and says what it waits: nothing hides the first all-gather of a forward, and the last
  /// reduction of a backward.
  PhaseWaits end(StepTime& step, double passes) const {
    double computes = 0;
    for (const double seconds : by_kind) computes += seconds;
    const double edge = collectives > 0 ? beside / collectives * passes : 0;
    const double exposed = std::max(0.0, beside - std::max(computes, host)) + edge;
    for (std::size_t kind = 0; kind < kWorkKinds; ++kind) step.by_kind[kind] += by_kind[kind];
    step.by_kind[static_cast<std::size_t>(WorkKind::communication)] += exposed;
    step.idle += idle;
    return computes > 0 ? PhaseWaits{idle / computes, exposed / computes} : PhaseWaits{};
  }

  std::array<double, kWorkKinds> by_kind{};
  double host = 0, idle = 0, beside = 0, collectives = 0;
};

/// The host runs ahead, and the GPU waits where it has done all that the host asked for. Through a stretch, such as the
/// forward of a stack's blocks that are alike, both go at an even pace.
struct Pace {
  void add(double asks, double computes) {
    host += asks;
    gpu += computes;
  }
  /// Seconds of the stretch in which the GPU waited.
  double end_stretch() {
    const double waited = std::max(0.0, host - gpu);
    gpu += waited;
    return waited;
  }
  void synchronize() { host = gpu; }

  double host = 0, gpu = 0;  ///< when either is done with what was added
};

/// Of a step, before its sums are divided by the steps. `busy`: seconds of kernels by what they take of the GPU.
Utilization utilization_of(const StepTime& step, Occupation busy, const Occupation& of_communication) {
  busy.add(of_communication, step.by_kind[static_cast<std::size_t>(WorkKind::communication)]);
  const double seconds = step.seconds;
  return {
      .active = (seconds - step.idle + active_while_idle(step.idle, static_cast<double>(step.work.kernels))) / seconds,
      .smact = busy.multiprocessors / seconds,
      .smocc = busy.warps / seconds,
      .tenso = busy.tensor_cores / seconds,
      .drama = busy.memory / seconds};
}

}  // namespace

bool is_timed(const PhaseMark& phase, int first, int last) {
  return phase.iteration >= first && phase.iteration <= last && phase.name != PhaseName::init &&
         phase.name != PhaseName::batch && phase.name != PhaseName::evaluation && phase.name != PhaseName::saving;
}

int last_iteration(const Log& log) {
  int last = 0;
  for (const PhaseMark& phase : log.phases) last = std::max(last, phase.iteration);
  return last;
}

bool runs_beside(const Work& work, PhaseName phase, bool overlaps_reduction) {
  return work.stream != kDefaultStream ||
         (overlaps_reduction && work.kind == WorkKind::communication && phase == PhaseName::backward);
}

StepTime step_time(const Log& log, const GpuSpeed& gpu, const Device& device, std::int64_t micro_steps,
                   bool overlaps_reduction) {
  StepTime step;
  if (log.phases.empty()) return step;
  const bool infers = log.phases.back().name == PhaseName::decode || log.phases.back().name == PhaseName::prefill;
  const int last = last_iteration(log);
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
  const Occupations occupations(gpu, device);
  Occupation busy;
  std::array<PhaseTime, kPhases> phases{};
  std::array<double, 8> flops_of_dtype{};
  std::size_t phase = 0;
  Pace pace;
  std::int64_t stretch = 0;  // how often what it is made of was done
  const auto of_phase = [&]() -> PhaseTime& { return phases[static_cast<std::size_t>(log.phases[phase].name)]; };
  for (std::size_t i = 0; i < times.size(); ++i) {
    while (phase + 1 < log.phases.size() && log.phases[phase + 1].work.work <= i) {
      of_phase().idle += pace.end_stretch();
      ++phase;
      // Each step's loss is read, and each token.
      if (infers || log.phases[phase].iteration != log.phases[phase - 1].iteration) pace.synchronize();
    }
    const Work& work = log.work.works[i];
    if (times[i] == 0 || work.kind == WorkKind::none) continue;
    if (times[i] != stretch) of_phase().idle += pace.end_stretch();
    stretch = times[i];
    const PhaseName name = log.phases[phase].name;
    const auto count = static_cast<double>(times[i]);
    const KernelTime kernel = kernels.of(log.work, work);
    const bool is_beside = runs_beside(work, name, overlaps_reduction);
    const double asks = host_seconds(work, name) * count;
    pace.add(asks, is_beside ? 0 : kernel.seconds * count);
    of_phase().host += asks;
    of_phase().add(work, kernel, count, is_beside);
    if (work.kind == WorkKind::communication)
      step.on_links += kernel.seconds * count;
    else if (!is_beside)
      busy.add(occupations.of(log.work, work, kernel.seconds), kernel.seconds * count);
    if (!kernel.is_measured) step.unmeasured += kernel.seconds * count;
    step.work.add(log.work, work, times[i]);
    flops_of_dtype[static_cast<std::size_t>(work.dtype)] += count * static_cast<double>(log.work.product(work).flops);
  }
  of_phase().idle += pace.end_stretch();

  const double steps = last - first + 1;
  for (std::size_t name = 0; name < phases.size(); ++name) {
    const double before = step.seconds;
    step.waits[name] = phases[name].end(step, static_cast<double>(micro_steps) * steps);
    step.seconds = step.idle;
    for (const double seconds : step.by_kind) step.seconds += seconds;
    if (static_cast<PhaseName>(name) == PhaseName::prefill) step.prefill = step.seconds - before;
    if (static_cast<PhaseName>(name) == PhaseName::decode) step.decode = step.seconds - before;
  }
  if (step.seconds > 0) step.utilization = utilization_of(step, busy, occupations.of_communication());
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
