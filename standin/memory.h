#pragma once

#include <cstddef>

#include "abi.h"

/// The memory of the devices: address space of this process that costs nothing until it is written, counted as the
/// driver counts it. Pinned host memory is the host's own.
namespace standin {

/// A block of the current device, 2 MiB-aligned as cudaMalloc's large blocks are; kOutOfMemory at the device's end.
Error allocate(void** pointer, std::size_t bytes);
Error release(void* pointer);

/// Free and total bytes of the current device.
void count(std::size_t* free_bytes, std::size_t* total_bytes);

/// The most that a device's blocks took at a time, in bytes: of everybody's in this process, not only PyTorch's.
std::size_t peak(int device);

/// Host memory that the driver knows: its own (allocated here) or the caller's.
Error allocate_pinned(void** pointer, std::size_t bytes);
Error release_pinned(void* pointer);
void pin(void* pointer, std::size_t bytes);
void unpin(void* pointer);

/// Whose a pointer is.
void describe(PointerAttributes& attributes, const void* pointer);

/// The block that a pointer lies in; false where it is no device memory.
bool block_of(const void* pointer, void** begin, std::size_t* bytes);

/// Physical memory without an address, for cuMemCreate: only counted.
Error create_physical(std::size_t bytes, int device, std::size_t* handle);
Error release_physical(std::size_t handle);

/// Addresses without memory, for cuMemAddressReserve.
Error reserve_addresses(void** pointer, std::size_t bytes);
Error release_addresses(void* pointer, std::size_t bytes);

/// Forgets what was written there.
void forget(void* pointer, std::size_t bytes);

/// Copies whose bytes somebody may read back: those between host and device, up to 16 MiB. What kernels would have
/// computed is not there to be copied.
void copy(void* to, const void* from, std::size_t bytes, int kind);

}  // namespace standin
