#include "cuda/outside.h"

namespace oometer {
namespace {

constexpr std::int64_t mib(double count) { return static_cast<std::int64_t>(count * 1024 * 1024); }

/// What processes held beside the allocator's segments, by compute capability: "memory in use" less what PyTorch had
/// reserved, where no other origin is said in public out-of-memory messages of one-GPU PyTorch processes. It holds the
/// driver's state, the images of the kernels that were used, and the handles of cuBLAS and cuDNN. Kernels are loaded as
/// they are first used: torch sets CUDA_MODULE_LOADING=LAZY since 1.13 (torch/cuda/__init__.py); with EAGER a V100 had
/// 1,343 MiB (Hugging Face's performance guide, of 2022). nvidia-smi's memory.used also counts what the driver keeps
/// for itself, which cudaMemGetInfo's total, and so `usable_bytes`, leaves out: with it a process with nothing but tiny
/// matrices shows 1,443 MiB on an A100 40 GB (GPUMemNet's MLPs, the least of 3,000 runs).
struct CudaContext {
  int major;
  int minor;
  double expected;  // MiB
  double low;
  double high;
  const char* evidence;
};
constexpr CudaContext kContexts[] = {
    {6, 0, 200, 100, 400, "not measured; the next generation's figure with a wider range"},
    {7, 0, 300, 150, 500, "not measured; between the T4 and the A100"},
    // Total - free - reserved; 104.875 before the first kernel. fitcheck's three sessions: torch 2.10 with CUDA 12.8
    // and torch 2.14 with CUDA 13.0 had the same to the byte
    {7, 5, 140.875, 100, 160, "140.875 MiB on a T4 in 57 runs (fitcheck)"},
    {8, 0, 500, 400, 620, "0.49 GiB on an A100 40 GB"},
    {8, 6, 256, 200, 450, "0.22 GiB on an A10, 0.25 GiB on an RTX 3080"},
    {8, 9, 480, 380, 560, "0.42 to 0.50 GiB on L40S, 0.48 to 0.49 GiB on RTX 4090"},
    // tests/measured/h100.jsonl, torch 2.11: memory.used with the process less without it, less reserved; 619 before
    // the first kernel
    {9, 0, 767, 500, 800, "767 MiB on an H100 with CUDA 13 (695 to 779 in 85 runs), 0.5 to 0.66 GiB with CUDA 12"},
    {10, 0, 767, 500, 900, "not measured; Hopper's figure with a wider range"},
    {12, 0, 450, 290, 650, "0.30 and 0.58 GiB on RTX 5090"},
};

/// A communicator of one node after its first all-reduce: 12 MiB a channel and connection (10 MiB receive buffers,
/// 2 MiB send side: NCCL 2.30, src/init.cc and transport/p2p.cc). Totals as reported where they were.
struct Nccl {
  double expected;  // MiB
  double low;
  double high;
  const char* evidence;
};
constexpr Nccl kTwoOverNvlink{544, 300, 700, "2 A100 over NVLink: 544 MB (NCCL issue 964)"};
constexpr Nccl kMoreOverNvlink{688, 500, 1600,
                               "3 or more A100: 688 MB (NCCL issue 964); 1.6 GB over several nodes (issue 864)"};
constexpr Nccl kHopper{
    900, 500, 2200,
    "the A100's 688 MB plus NVLS buffers; not measured, but NCCL issue 1685 reports up to 3.3 GB with all-to-all"};
constexpr Nccl kOverPcie{
    200, 48, 600, "2 to 4 channels of 12 MiB per connection over PCIe; computed from the buffer sizes, not measured"};

const Nccl& nccl_of(const Gpu& gpu, std::int64_t world) {
  const bool nvlink = gpu.minor == 0 && (gpu.major == 7 || gpu.major == 8);
  if (gpu.minor == 0 && (gpu.major == 9 || gpu.major == 10)) return kHopper;
  return !nvlink ? kOverPcie : world == 2 ? kTwoOverNvlink : kMoreOverNvlink;
}

// What few answers ask stays out of the first part of the WebAssembly module, as long as it is not inlined.

[[gnu::noinline]] void add_nccl(Outside& outside, const Gpu& gpu, std::int64_t world) {
  const Nccl& nccl = nccl_of(gpu, world);
  outside.nccl = mib(nccl.expected);
  outside.low += mib(nccl.low);
  outside.high += mib(nccl.high);
  outside.notes.push_back(std::string("NCCL, one communicator: ") + nccl.evidence + ".");
}

[[gnu::noinline]] void add_convolutions(Outside& outside) {
  outside.context += mib(290);
  outside.high += mib(350);
  outside.notes.push_back(
      "cuDNN's kernels: 290 MiB, the difference between processes of small image models and of small MLPs on the same "
      "A100 40 GB (GPUMemNet, nvidia-smi: 1,719 and 1,429 MiB).");
}

[[gnu::noinline]] void widen_uncalibrated(Outside& outside) {
  outside.low /= 2;
  outside.high *= 2;
  outside.notes.push_back("This GPU's runtime is not calibrated: CUDA's figures, with twice the range.");
}

}  // namespace

Outside outside_allocator(const Gpu& gpu, const Behaviours& behaviours, std::int64_t world, std::int64_t convolutions) {
  const CudaContext* context = &kContexts[0];
  for (const CudaContext& candidate : kContexts) {
    if (candidate.major < gpu.major || (candidate.major == gpu.major && candidate.minor <= gpu.minor)) {
      context = &candidate;
    }
  }
  Outside outside;
  outside.context = mib(context->expected);
  outside.low = mib(context->low);
  outside.high = mib(context->high);
  outside.notes.push_back(std::string("CUDA context and kernels: ") + context->evidence + ".");
  // On an H100 four image models had 769 to 771 MiB, as language models have.
  const bool cudnn_adds = behaviours.cudnn && gpu.major < 9;
  if (cudnn_adds && convolutions > 1) {
    add_convolutions(outside);
  } else if (cudnn_adds && convolutions > 0) {
    // The processes behind the table were language models, mostly: its kernels widen the upper end.
    outside.high += mib(100);
    outside.notes.push_back(
        "cuBLAS and cuDNN: included in the context's figure; cuDNN's kernels may add up to 100 MiB (an estimate).");
  }
  if (world > 1) add_nccl(outside, gpu, world);
  if (!gpu.calibrated) widen_uncalibrated(outside);
  return outside;
}

}  // namespace oometer
