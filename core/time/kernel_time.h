#pragma once

#include "time/gpu_speed.h"
#include "trace/work.h"

/// How long one kernel takes: what it computes or what it moves, and its launch.
namespace oometer {

struct KernelTime {
  double seconds = 0;
  bool is_measured = true;        ///< false: of no kernel like it, or on no such chip, was the time measured
  bool is_compute_bound = false;  ///< its FLOPs take longer than its bytes
};

/// The times of one GPU's kernels.
///
///   products        launch + sqrt((FLOPs / (peak e))^2 + (bytes / (bandwidth b))^2)
///   attention       launch + max(FLOPs / (peak e) (1 + tokens / keys), bytes / (bandwidth b))
///   all others      launch + bytes / (bandwidth b); index_put_ at least its longest run of rows
///   collectives     launch + bytes over the links / (link e)
class KernelTimes {
 public:
  explicit KernelTimes(const GpuSpeed& gpu);

  /// A collective's ranks are in nodes of eight GPUs.
  KernelTime of(const WorkLog& log, const Work& work) const;

 private:
  KernelTime product(const WorkProduct& product, const Work& work) const;
  KernelTime attention(const WorkProduct& product, const Work& work) const;
  KernelTime collective(const WorkProduct& product, const Work& work) const;
  KernelTime streamed(const Work& work, double of_bandwidth, bool is_measured) const;
  double of_bandwidth(double bytes_a_second) const;

  const GpuSpeed& gpu_;
  const ChipRates rates_;
};

}  // namespace oometer
