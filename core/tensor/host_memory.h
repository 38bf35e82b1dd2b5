#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

/// What a process keeps in the host's memory because the device is too small for it.
namespace oometer {

/// What it is for.
enum class HostPart : std::uint8_t {
  parameters,          ///< offloaded shards or partitions
  master_weights,      ///< fp32
  gradients,           ///< of the masters, and flat ones of the weights' own type
  gradient_sums,       ///< of micro-steps before the last
  optimizer_states,    ///< in unified memory where they are paged
  weight_copies,       ///< ZeRO 1/2's half-precision copies of the masters
  saved_for_backward,  ///< save_on_cpu, checkpoints, of the forward that saves most
  kv_cache,
  pinned_cache,  ///< freed memory that allocators keep: pinned, or small
};
inline constexpr std::size_t kHostParts = 9;

/// As PyTorch's CachingHostAllocator (2.15: ATen/core/CachingHostAllocator.h, roundSize) rounds pinned memory.
std::int64_t pinned_size(std::int64_t bytes);

/// Bytes by part. A pinned block is as large as the allocator makes it, is kept when it is freed, and serves again
/// where just its size is asked for (get_free_block).
class HostMemory {
 public:
  void keep(HostPart part, std::int64_t bytes, bool pinned = false);
  void release_pinned(HostPart part, std::int64_t bytes);

  std::int64_t operator[](HostPart part) const { return bytes_[static_cast<std::size_t>(part)]; }
  std::int64_t pinned() const { return pinned_; }  ///< of all parts
  std::int64_t sum() const;

 private:
  std::int64_t& of(HostPart part) { return bytes_[static_cast<std::size_t>(part)]; }

  std::array<std::int64_t, kHostParts> bytes_{};
  std::array<std::int64_t, 63> free_{};  ///< blocks of 2^i bytes
  std::int64_t pinned_ = 0;
};

}  // namespace oometer
