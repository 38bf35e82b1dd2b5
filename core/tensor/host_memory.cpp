#include "tensor/host_memory.h"

#include <algorithm>
#include <bit>

namespace oometer {

namespace {

/// Which power of two it is.
std::size_t class_of(std::int64_t size) {
  return static_cast<std::size_t>(std::countr_zero(static_cast<std::uint64_t>(size)));
}

}  // namespace

std::int64_t pinned_size(std::int64_t bytes) {
  return static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(std::max<std::int64_t>(bytes, 1))));
}

[[gnu::noinline]] void HostMemory::keep(HostPart part, std::int64_t bytes, bool pinned) {
  if (bytes <= 0) return;
  if (!pinned) {
    of(part) += bytes;
    return;
  }
  const std::int64_t size = pinned_size(bytes);
  of(part) += size;
  if (std::int64_t& free = free_[class_of(size)]; free > 0) {
    --free;
    of(HostPart::pinned_cache) -= size;
  } else {
    pinned_ += size;
  }
}

[[gnu::noinline]] void HostMemory::release_pinned(HostPart part, std::int64_t bytes) {
  if (bytes <= 0) return;
  const std::int64_t size = pinned_size(bytes);
  of(part) -= size;
  of(HostPart::pinned_cache) += size;
  ++free_[class_of(size)];
}

std::int64_t HostMemory::sum() const {
  std::int64_t sum = 0;
  for (const std::int64_t bytes : bytes_) sum += bytes;
  return sum;
}

}  // namespace oometer
