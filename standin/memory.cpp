#include "memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <vector>

#include "device.h"
#include "holes.h"

namespace standin {

namespace {

constexpr std::size_t kGranule = std::size_t{2} << 20;
constexpr std::size_t kPage = 4096;
constexpr std::size_t kLargestCopy = std::size_t{16} << 20;

struct Block {
  std::size_t bytes;
  int device;
};

std::mutex guard;
std::map<std::uintptr_t, Block> blocks, pinned, reserved;  // by address
std::map<std::size_t, Block> physical;                     // by handle
std::size_t next_handle = 1;

struct Usage {
  std::size_t now = 0, peak = 0;
};

Usage& usage(int index) {
  static std::vector<Usage> of_devices(static_cast<std::size_t>(device().count));
  return of_devices[static_cast<std::size_t>(index)];
}

std::size_t round_up(std::size_t bytes, std::size_t unit) { return (bytes + unit - 1) / unit * unit; }

/// Counts bytes of a device, unless that is at its end.
bool take(int index, std::size_t bytes) {
  Usage& its = usage(index);
  if (device().ends && its.now + bytes + device().taken > device().total) return false;
  its.now += bytes;
  its.peak = std::max(its.peak, its.now);
  return true;
}

void give_back(const Block& block) { usage(block.device).now -= block.bytes; }

/// Address space where the host puts it, at a multiple of 2 MiB.
void* map(std::size_t bytes) {
  void* const found =
      mmap(nullptr, bytes + kGranule, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (found == MAP_FAILED) return nullptr;
  const auto begin = reinterpret_cast<std::uintptr_t>(found);
  const std::uintptr_t aligned = round_up(begin, kGranule);
  if (aligned > begin) munmap(found, aligned - begin);
  if (const std::size_t rest = begin + kGranule - aligned; rest > 0)
    munmap(reinterpret_cast<void*>(aligned + bytes), rest);
  // A page of 4 KiB for what is written, not one of 2 MiB.
  madvise(reinterpret_cast<void*>(aligned), bytes, MADV_NOHUGEPAGE);
  return reinterpret_cast<void*>(aligned);
}

/// The entry of `table` that an address lies in, or its end.
std::map<std::uintptr_t, Block>::const_iterator find(const std::map<std::uintptr_t, Block>& table,
                                                     const void* pointer) {
  const auto address = reinterpret_cast<std::uintptr_t>(pointer);
  auto after = table.upper_bound(address);
  if (after == table.begin()) return table.end();
  --after;
  return address < after->first + after->second.bytes ? after : table.end();
}

}  // namespace

Error allocate(void** pointer, std::size_t bytes) {
  const std::lock_guard<std::mutex> lock(guard);
  *pointer = nullptr;
  const Block block{round_up(bytes, 512), current_device()};
  if (!take(block.device, block.bytes)) return kOutOfMemory;
  void* const found = map(round_up(block.bytes, kPage));
  if (found == nullptr) {
    give_back(block);
    return kOutOfMemory;
  }
  blocks[reinterpret_cast<std::uintptr_t>(found)] = block;
  *pointer = found;
  return kSuccess;
}

Error release(void* pointer) {
  if (pointer == nullptr) return kSuccess;
  const std::lock_guard<std::mutex> lock(guard);
  const auto found = blocks.find(reinterpret_cast<std::uintptr_t>(pointer));
  if (found == blocks.end()) return kInvalidValue;
  munmap(pointer, round_up(found->second.bytes, kPage));
  give_back(found->second);
  blocks.erase(found);
  return kSuccess;
}

void count(std::size_t* free_bytes, std::size_t* total_bytes) {
  const std::lock_guard<std::mutex> lock(guard);
  const std::size_t held = usage(current_device()).now + device().taken;
  *total_bytes = device().total;
  *free_bytes = held < device().total ? device().total - held : 0;
}

std::size_t peak(int index) {
  const std::lock_guard<std::mutex> lock(guard);
  return index < 0 || index >= device().count ? 0 : usage(index).peak;
}

Error allocate_pinned(void** pointer, std::size_t bytes) {
  *pointer = nullptr;
  if (posix_memalign(pointer, kPage, bytes == 0 ? 1 : bytes) != 0) return kOutOfMemory;
  pin(*pointer, bytes);
  return kSuccess;
}

Error release_pinned(void* pointer) {
  unpin(pointer);
  std::free(pointer);
  return kSuccess;
}

void pin(void* pointer, std::size_t bytes) {
  const std::lock_guard<std::mutex> lock(guard);
  pinned[reinterpret_cast<std::uintptr_t>(pointer)] = {bytes == 0 ? 1 : bytes, current_device()};
}

void unpin(void* pointer) {
  const std::lock_guard<std::mutex> lock(guard);
  pinned.erase(reinterpret_cast<std::uintptr_t>(pointer));
}

void describe(PointerAttributes& attributes, const void* pointer) {
  attributes = {};
  const std::lock_guard<std::mutex> lock(guard);
  for (const auto* table : {&blocks, &reserved}) {
    const auto found = find(*table, pointer);
    if (found == table->end()) continue;
    attributes.type = kDevice;
    attributes.device = found->second.device;
    attributes.devicePointer = const_cast<void*>(pointer);
    return;
  }
  const auto host = find(pinned, pointer);
  if (host == pinned.end()) return;
  attributes.type = kHost;
  attributes.device = host->second.device;
  attributes.devicePointer = attributes.hostPointer = const_cast<void*>(pointer);
}

bool block_of(const void* pointer, void** begin, std::size_t* bytes) {
  const std::lock_guard<std::mutex> lock(guard);
  const auto found = find(blocks, pointer);
  if (found == blocks.end()) return false;
  if (begin != nullptr) *begin = reinterpret_cast<void*>(found->first);
  if (bytes != nullptr) *bytes = found->second.bytes;
  return true;
}

Error create_physical(std::size_t bytes, int index, std::size_t* handle) {
  const std::lock_guard<std::mutex> lock(guard);
  if (index < 0 || index >= device().count) return kInvalidDevice;
  if (!take(index, bytes)) return kOutOfMemory;
  *handle = next_handle++;
  physical[*handle] = {bytes, index};
  return kSuccess;
}

Error release_physical(std::size_t handle) {
  const std::lock_guard<std::mutex> lock(guard);
  const auto found = physical.find(handle);
  if (found == physical.end()) return kInvalidValue;
  give_back(found->second);
  physical.erase(found);
  return kSuccess;
}

Error reserve_addresses(void** pointer, std::size_t bytes) {
  const std::lock_guard<std::mutex> lock(guard);
  *pointer = map(round_up(bytes, kPage));
  if (*pointer == nullptr) return kOutOfMemory;
  reserved[reinterpret_cast<std::uintptr_t>(*pointer)] = {bytes, current_device()};
  return kSuccess;
}

Error release_addresses(void* pointer, std::size_t bytes) {
  const std::lock_guard<std::mutex> lock(guard);
  if (reserved.erase(reinterpret_cast<std::uintptr_t>(pointer)) == 0) return kInvalidValue;
  munmap(pointer, round_up(bytes, kPage));
  return kSuccess;
}

void forget(void* pointer, std::size_t bytes) { madvise(pointer, bytes, MADV_DONTNEED); }

void copy(void* to, const void* from, std::size_t bytes, int kind) {
  if (kind == kDefault) {
    PointerAttributes its, theirs;
    describe(its, to);
    describe(theirs, from);
    if (its.type == kDevice && theirs.type == kDevice) kind = kDeviceToDevice;
  }
  if (kind != kDeviceToDevice && bytes <= kLargestCopy && !in_hole(from)) std::memcpy(to, from, bytes);
}

}  // namespace standin
