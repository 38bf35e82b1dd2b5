#include "time/lanes.h"

#include <algorithm>

#include "time/kernel_time.h"

namespace oometer {

namespace {

/// A log's works and their repetitions, each with what one run of it takes.
class Runs {
 public:
  Runs(const Log& log, const GpuSpeed& gpu, const Device& device, const StepTime& step, bool overlaps_reduction)
      : log_(log.work) {
    const KernelTimes kernels(gpu);
    const Occupations occupations(gpu, device);
    std::size_t phase = 0;
    works_.resize(log_.works.size());
    for (std::size_t i = 0; i < works_.size(); ++i) {
      while (phase + 1 < log.phases.size() && log.phases[phase + 1].work.work <= i) ++phase;
      works_[i].phase = log.phases[phase].name;
      const Work& work = log_.works[i];
      if (work.kind == WorkKind::none || runs_beside(work, works_[i].phase, overlaps_reduction)) continue;
      const double seconds = kernels.of(log_, work).seconds;
      if (work.kind == WorkKind::communication) {
        works_[i].multiprocessors = occupations.of_communication().multiprocessors * seconds;
        works_[i].communication = seconds;
      } else {
        const Occupation its = occupations.of(log_, work, seconds);
        works_[i].multiprocessors = its.multiprocessors * seconds;
        works_[i].tensor_cores = its.tensor_cores * seconds;
        works_[i].memory = its.memory * seconds;
      }
      const PhaseWaits& waits = step.waits[static_cast<std::size_t>(works_[i].phase)];
      works_[i].idle = seconds * waits.idle;
      works_[i].communication += seconds * waits.communication;
      works_[i].seconds = seconds * (1 + waits.idle + waits.communication);
    }
    for (const WorkRepeat& repeat : log_.repeats) repeats_.push_back(whole(repeat.range));  // of earlier ones
  }

  /// One run of a range.
  Lane whole(const WorkRange& range) const {
    Lane sum;
    if (range.begin.work < works_.size()) sum.phase = works_[range.begin.work].phase;
    for (std::uint32_t i = range.begin.work; i < range.end.work; ++i) sum.add(works_[i], 1);
    for (std::uint32_t i = range.begin.repeat; i < range.end.repeat; ++i)
      sum.add(repeats_[i], static_cast<double>(log_.repeats[i].times));
    return sum;
  }

  /// Hands them to `paint` in their order; repetitions that take less than `resolution` seconds all at once.
  template <typename Paint>
  void walk(const WorkRange& range, double resolution, const Paint& paint) const {
    std::uint32_t repeat = range.begin.repeat;
    for (std::uint32_t i = range.begin.work;; ++i) {
      for (; repeat < range.end.repeat && (log_.repeats[repeat].at <= i || i == range.end.work); ++repeat) {
        const WorkRepeat& again = log_.repeats[repeat];
        if (repeats_[repeat].seconds < resolution) {
          paint(repeats_[repeat], static_cast<double>(again.times));
        } else {
          for (std::int64_t time = 0; time < again.times; ++time) walk(again.range, resolution, paint);
        }
      }
      if (i >= range.end.work) return;
      paint(works_[i], 1.0);
    }
  }

 private:
  const WorkLog& log_;
  std::vector<Lane> works_, repeats_;
};

/// Fills stretches of equal length one after the other.
class Painter {
 public:
  Painter(double seconds, std::size_t stretches)
      : width_(seconds / static_cast<double>(stretches)), room_(width_), stretches_(stretches) {}

  void operator()(const Lane& its, double times) {
    for (double left = its.seconds * times; left > 0;) {
      const bool is_last = at_ + 1 == stretches_.size();
      const double part = is_last ? left : std::min(left, room_);
      Lane& stretch = stretches_[at_];
      if (stretch.seconds == 0) stretch.phase = its.phase;
      stretch.add(its, part / its.seconds);
      left -= part;
      room_ -= part;
      if (!is_last && room_ <= 0) {
        ++at_;
        room_ = width_;
      }
    }
  }

  std::vector<Lane> take() { return std::move(stretches_); }

 private:
  const double width_;
  double room_;
  std::size_t at_ = 0;
  std::vector<Lane> stretches_;
};

}  // namespace

std::vector<Lane> lanes(const Log& log, const GpuSpeed& gpu, const Device& device, const StepTime& step,
                        bool overlaps_reduction, std::size_t stretches) {
  const Runs runs(log, gpu, device, step, overlaps_reduction);
  const int last = last_iteration(log);
  std::vector<WorkRange> ranges;
  double seconds = 0;
  for (std::size_t i = 0; i < log.phases.size(); ++i) {
    if (!is_timed(log.phases[i], last, last)) continue;
    ranges.push_back({log.phases[i].work, i + 1 < log.phases.size() ? log.phases[i + 1].work : log.work.mark()});
    seconds += runs.whole(ranges.back()).seconds;
  }
  if (seconds == 0) return {};
  Painter painter(seconds, stretches);
  const auto paint = [&](const Lane& its, double times) { painter(its, times); };
  for (const WorkRange& range : ranges) runs.walk(range, seconds / static_cast<double>(stretches), paint);
  return painter.take();
}

}  // namespace oometer
