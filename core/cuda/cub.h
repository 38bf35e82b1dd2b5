#pragma once

#include <cstdint>

/// Temporary storage of CUB's device-wide algorithms as PyTorch uses them (CCCL 3, tuned for sm_80 and sm_90).
/// Found by fitting the sizes that PyTorch 2.15 asks its allocator for.
namespace oometer {

constexpr std::int64_t round_up(std::int64_t value, std::int64_t multiple) { return (value + multiple - 1) / multiple * multiple; }

/// DeviceScan over `count` items of 8 bytes: one 16-byte descriptor a tile of 128 x 7 items and 32 of padding, aligned.
constexpr std::int64_t cub_scan_bytes(std::int64_t count) { return round_up(16 * ((count + 895) / 896 + 32), 256) + 511; }

}  // namespace oometer
