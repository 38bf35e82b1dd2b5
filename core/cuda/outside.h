#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtime/behaviours.h"

/// What a process holds on a GPU outside PyTorch's caching allocator, and the GPUs themselves.
namespace oometer {

/// How a figure of the catalogue was come by: `measured` was read on a device (by us or in a published log), `derived`
/// follows from a measured sibling, `nominal` is the data sheet's size less the usual share.
enum class Basis : std::uint8_t { measured, derived, nominal };

enum class Vendor : std::uint8_t { nvidia, amd };

/// One GPU. `usable_bytes` is the device's total as cudaMemGetInfo gives it: the context and NCCL come off it. Where
/// `allocator_limit` is set it is instead what the allocator itself may take, and nothing comes off it.
struct Gpu {
  std::string id;    ///< "h100-80gb"; "" where the job described the device itself
  std::string name;  ///< "H100 SXM 80 GB"
  Vendor vendor = Vendor::nvidia;
  std::string architecture;  ///< "hopper"
  std::int64_t usable_bytes = 0;
  int major = 9;  ///< compute capability; AMD: the gfx number's first digits (gfx942: 9, 4)
  int minor = 0;
  std::int64_t sm_count = 132;  ///< streaming multiprocessors; AMD: compute units
  Basis basis = Basis::nominal;
  bool calibrated = true;  ///< false: the rules of another vendor's libraries are guessed
  bool allocator_limit = false;

  bool operator==(const Gpu&) const = default;
};

/// What one's own measurement says of jobs like it.
struct Calibration {
  double reserved = 1;  ///< measured over simulated
  std::optional<std::int64_t> outside_allocator;

  bool operator==(const Calibration&) const = default;
};

/// Bytes outside the allocator, each part with its source in `notes`; `low` and `high` bound the sum.
struct Outside {
  std::int64_t context = 0;  ///< CUDA context: driver state, the kernels' images loaded lazily as they are first used
  std::int64_t nccl = 0;     ///< communicator buffers of one process group that spans the world
  std::int64_t low = 0;
  std::int64_t high = 0;
  std::vector<std::string> notes;

  std::int64_t total() const { return context + nccl; }
};

/// What to expect for a training process on `gpu` in a job of `world` GPUs in one node. `convolutions`: how many it
/// has, for which cuDNN is loaded: one is a patch embedding's.
Outside outside_allocator(const Gpu& gpu, const Behaviours& behaviours, std::int64_t world, std::int64_t convolutions);

}  // namespace oometer
