#pragma once

#include "tensor/context.h"
#include "time/kernel_time.h"

/// How much of a GPU its kernels use, as NVIDIA's tools show it.
namespace oometer {

/// Fractions, averages of a step's time. DCGM's names are those of `dcgmi dmon`; its definitions are in NVIDIA's DCGM
/// user guide, "Profiling metrics".
struct Utilization {
  /// GPUTL, nvidia-smi's utilization.gpu: of the time in which a kernel ran (NVML, nvmlUtilization_t); and GRACT,
  /// DCGM_FI_PROF_GR_ENGINE_ACTIVE: in which any part of the graphics or compute engines was active. Of 3,000 measured
  /// runs the first is 0.03 above the second, with a correlation of 0.996 (docs/time.md): they are not told apart.
  double active = 0;
  double smact = 0;  ///< DCGM_FI_PROF_SM_ACTIVE: a multiprocessor has a warp, mean of all multiprocessors
  double smocc = 0;  ///< DCGM_FI_PROF_SM_OCCUPANCY: resident warps of the most that there can be
  double tenso = 0;  ///< DCGM_FI_PROF_PIPE_TENSOR_ACTIVE: of cycles in which tensor cores work
  double drama = 0;  ///< DCGM_FI_PROF_DRAM_ACTIVE: of cycles in which the memory sends or receives
};

/// What a kernel takes of the GPU while it runs: fractions.
struct Occupation {
  void add(const Occupation& its, double times) {
    multiprocessors += its.multiprocessors * times;
    warps += its.warps * times;
    tensor_cores += its.tensor_cores * times;
    memory += its.memory * times;
  }

  double multiprocessors = 0, warps = 0, tensor_cores = 0, memory = 0;
};

/// The occupations of one GPU's kernels, from the blocks of their launches.
class Occupations {
 public:
  Occupations(const GpuSpeed& gpu, const Device& device);

  /// Of a kernel that takes so many seconds.
  Occupation of(const WorkLog& log, const Work& work, double seconds) const;
  /// Of any collective.
  Occupation of_communication() const;

 private:
  Occupation filled(double blocks, double warps_of_block, double most_warps) const;

  const GpuSpeed& gpu_;
  const double multiprocessors_, warps_;  ///< how many there are, how many warps one of them holds
  const double product_warps_;            ///< of these what products with tensor cores use
  const bool has_tensor_cores_;
};

/// The time in which a GPU that waits for the host is counted as active all the same, of so many kernels.
double active_while_idle(double idle, double kernels);

}  // namespace oometer
