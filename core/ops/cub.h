#pragma once

#include <cstdint>

#include "rounding.h"

/// Temporary storage of CUB's device-wide algorithms as PyTorch uses them (CCCL 3, tuned for sm_80 and sm_90).
/// Found by fitting the sizes that PyTorch 2.15 asks its allocator for.
namespace oometer {

/// DeviceScan over `count` items of 8 bytes: one 16-byte descriptor a tile of 128 x 7 items and 32 of padding, aligned.
constexpr std::int64_t cub_scan_bytes(std::int64_t count) {
  return round_up(16 * ((count + 895) / 896 + 32), 256) + 511;
}

/// DeviceReduce of `count` items to a 4-byte sum, up to this many in one block, which needs (a byte of) nothing.
constexpr std::int64_t kCubReduceOneBlock = 4096;

/// DeviceReduce to a 4-byte sum: a partial result for each block of the largest grid (two blocks a multiprocessor, five
/// times over).
constexpr std::int64_t cub_reduce_bytes(std::int64_t sm_count) { return round_up(sm_count * 40, 256) + 255; }

/// DeviceSelect over `count` flags: an 8-byte descriptor a tile, whose size is tuned to the architecture.
constexpr std::int64_t cub_select_bytes(std::int64_t count, int compute_capability_major) {
  const std::int64_t tile = compute_capability_major >= 9 ? 4096 : 2304;
  return round_up(8 * ((count + tile - 1) / tile + 32), 256) + 511;
}

/// DeviceRadixSort of `count` pairs of 8-byte keys and values by `bits` of their keys, eight a pass, whatever their
/// number: a second buffer for each, and the digits' counts.
constexpr std::int64_t cub_radix_sort_bytes(std::int64_t count, int bits, int compute_capability_major) {
  const std::int64_t tile = compute_capability_major >= 9 ? 4608 : 3840;
  return 2 * round_up(8 * count, 256) + std::int64_t{2048} * ((bits + 7) / 8) + 1024 * ((count + tile - 1) / tile) +
         511;
}

/// The same of keys up to `largest` (radix_sort_pairs with get_num_bits of it). Few pairs are sorted in one block,
/// which needs nothing, and one pass needs no second buffers.
constexpr std::int64_t cub_sort_pairs_bytes(std::int64_t count, std::int64_t largest, int compute_capability_major) {
  if (count <= 2304) return 1;
  int bits = 1;
  for (; largest > 1; largest >>= 1) ++bits;
  const std::int64_t bytes = cub_radix_sort_bytes(count, bits, compute_capability_major);
  return bits > 8 ? bytes : bytes - 2 * round_up(8 * count, 256);
}

}  // namespace oometer
