#include "time/utilization.h"

#include <algorithm>
#include <cmath>

#include "tensor/op.h"

namespace oometer {

namespace {

constexpr double kThreads = 32;  ///< of a warp

/// Elementwise kernels have blocks of 128 threads (num_threads in ATen/native/cuda/thread_constants.h), each with 8
/// elements (elems_per_thread in CUDALoops.cuh), of fp32 with 4 until torch 2.5: 16 bytes where it is not 32.
constexpr double kElementwiseThreads = 128, kElementwiseBytes = 128 * 16;

/// reduce_kernel has blocks of up to 512 threads, each with at least 4 values of 4 bytes at once (MAX_NUM_THREADS
/// and vt0 in ATen/native/cuda/Reduce.cuh). Norms and softmax are not far from that: a block for a row.
constexpr double kReductionThreads = 512, kReductionBytes = 512 * 4 * 4;

/// multi_tensor_apply: a block of 512 threads for 65,536 elements of a tensor (kChunkSize, kBlockSize in
/// ATen/native/cuda/MultiTensorApply.cuh). That two of them share a multiprocessor is what half of the measured MLPs,
/// whose Adam takes most of their time where batches are small, have: docs/time.md.
constexpr double kChunkThreads = 512, kChunk = 65'536, kMostChunkWarps = 32;

/// cuBLAS has tiles from 256 x 128 down to 32 x 32 and takes smaller ones where larger would leave multiprocessors
/// empty: a product is spread over as many as there are of the smallest. 128 threads are a tile's, and registers leave
/// room for 16 warps of a multiprocessor (ampere_sgemm_128x128: 256 threads, two blocks). Kernels for tensor cores are
/// fewer, their tiles fill the shared memory: two blocks of four warps, on Hopper and Blackwell one of three warpgroups
/// (CUTLASS, efficient_gemm.md).
constexpr double kTile = 32, kTileWarps = 4, kProductWarps = 16, kTensorWarps = 8, kWarpgroupWarps = 12;

/// FlashAttention-2: a block of four warps for 128 queries of a head, at most two on a multiprocessor
/// (flash_fwd_launch_template.h).
constexpr double kQueries = 128, kAttentionWarps = 4, kMostAttentionWarps = 8;

/// NCCL has a block for each channel; its logs say "24 coll channels" of A100s and H100s that NVLink connects, and 2 or
/// 4 over PCIe. A block has up to 640 threads (NCCL_MAX_NTHREADS).
constexpr double kChannels = 24, kPcieChannels = 4, kChannelWarps = 20;

/// The engine is active a little longer than the kernel that it runs: fitted to half of GPUMemNet's MLP runs on an A100
/// (tools/measured_utilization.py), of which many have kernels of 3 us.
constexpr double kEngineSeconds = 2.5e-6;

double divided_up(double a, double b) { return std::ceil(a / b); }

}  // namespace

Occupations::Occupations(const GpuSpeed& gpu, const Device& device)
    : gpu_(gpu),
      multiprocessors_(device.sm_count),
      warps_(static_cast<double>(max_threads_per_sm(device)) / kThreads),
      product_warps_(device.major >= 9 && device.major != 12 ? kWarpgroupWarps : kTensorWarps),
      has_tensor_cores_(device.major >= 7) {}

Occupation Occupations::filled(double blocks, double warps_of_block, double most_warps) const {
  const double room = multiprocessors_ * std::min(most_warps, warps_);
  return {.multiprocessors = std::min(1.0, blocks / multiprocessors_),
          .warps = std::min(blocks * warps_of_block, room) / (multiprocessors_ * warps_)};
}

Occupation Occupations::of(const WorkLog& log, const Work& work, double seconds) const {
  const WorkProduct& product = log.product(work);
  const auto written = static_cast<double>(work.written), moved = static_cast<double>(work.read) + written;
  const auto batch = static_cast<double>(product.batch), m = static_cast<double>(product.m),
             n = static_cast<double>(product.n);
  const double elementwise = std::max(1.0, divided_up(written, kElementwiseBytes));
  const bool half = is_half(work.dtype), convolves = work.kind == WorkKind::convolution;
  const bool by_tensor_cores = has_tensor_cores_ && product.m > 0 && (half || (convolves && gpu_.tf32 > 0));
  Occupation its;
  switch (work.kind) {
    case WorkKind::gemm:
    case WorkKind::convolution:
      if (product.m > 0)
        its = filled(batch * divided_up(m, kTile) * divided_up(n, kTile), kTileWarps,
                     by_tensor_cores ? product_warps_ : kProductWarps);
      else
        its = filled(elementwise, kElementwiseThreads / kThreads, warps_);
      break;
    case WorkKind::attention:
      its = filled(std::max(1.0, batch * divided_up(m, kQueries)), kAttentionWarps, kMostAttentionWarps);
      break;
    case WorkKind::reduction:
      its = filled(std::max(1.0, divided_up(static_cast<double>(work.read), kReductionBytes)),
                   kReductionThreads / kThreads, warps_);
      break;
    case WorkKind::optimizer: {
      const double tensors = static_cast<Op>(work.op) == Op::fused_adam ? 3 : 1;  // parameters and both moments
      const double elements = written / tensors / static_cast<double>(element_size(work.dtype));
      its = filled(std::max(1.0, divided_up(elements, kChunk)), kChunkThreads / kThreads, kMostChunkWarps);
      break;
    }
    default:
      its = filled(elementwise, kElementwiseThreads / kThreads, warps_);
  }
  if (by_tensor_cores)
    its.tensor_cores =
        std::min(1.0, static_cast<double>(product.flops) / (seconds * peak_flops(gpu_, work.dtype, convolves)));
  its.memory = std::min(1.0, moved / (seconds * gpu_.memory * 1e9));
  return its;
}

Occupation Occupations::of_communication() const {
  return filled(gpu_.fabric == Fabric::pcie ? kPcieChannels : kChannels, kChannelWarps, warps_);
}

double active_while_idle(double idle, double kernels) { return std::min(idle, kernels * kEngineSeconds); }

}  // namespace oometer
