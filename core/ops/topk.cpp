#include "ops/topk.h"

#include <algorithm>

#include "ops/argsort.h"
#include "ops/cub.h"
#include "ops/integers.h"
#include "rounding.h"

/// ATen/native/cuda (PyTorch 2.15): TensorTopK.cpp, TensorTopK.cu, Sort.cpp, SortStable.cu.
namespace oometer {

namespace {

/// should_use_multiblock
bool is_long(std::int64_t rows, std::int64_t length) {
  return rows <= 20     ? length >= 20000
         : rows <= 40   ? length >= 10000
         : rows <= 80   ? length >= 8000
         : rows < 200   ? length >= 5000
         : rows < 800   ? length >= 3000
         : rows <= 4000 ? length >= 800
                        : length >= 400;
}

/// mbtopk::launch: what several blocks know of a row.
void search_in_blocks(Context& context, std::int64_t rows, std::int64_t length) {
  constexpr std::int64_t block = 256, blocks_per_multiprocessor = 6, digits = 256;
  const std::int64_t items = std::clamp<std::int64_t>(
      divide_up(rows * length, context.device.sm_count * blocks_per_multiprocessor * block), 4, 64);
  const std::int64_t blocks = rows * divide_up(length, items * block);
  const Workspace kth_values(context, Op::topk, 4 * rows), ks_to_find(context, Op::topk, 8 * rows),
      desired(context, Op::topk, 8 * rows), counts(context, Op::topk, 2 * digits * blocks),
      digit_sums(context, Op::topk, 4 * digits * rows), within_counts(context, Op::topk, 4 * blocks),
      kth_counts(context, Op::topk, 4 * blocks);
  // DeviceScan::InclusiveSumByKey, of both
  for (int i = 0; i < 2; ++i) const Workspace scan(context, Op::topk, 1279);
}

/// sort_out of float32, in rows of more than a block sorts.
void sort_rows(Context& context, std::int64_t rows, std::int64_t length) {
  constexpr std::int64_t by_full_sort = 128;  // up to so many rows, all of them are sorted at once
  const std::int64_t n = rows * length;
  const bool is_hopper = context.device.major >= 9;
  const auto pairs_bytes = [&](std::int64_t count) {
    return round_up(4 * count, 256) + round_up(8 * count, 256) + std::int64_t{2048} * 4 +
           1024 * divide_up(count, is_hopper ? 5376 : 3072) + 511;
  };
  const Workspace first(context, Op::sort, 8 * n);
  if (rows >= by_full_sort) {
    const Workspace scratch(context, Op::sort, round_up(4 * n, 256) + round_up(8 * n, 256) + 255);
    return;
  }
  if (rows == 1) {
    const Workspace scratch(context, Op::sort, pairs_bytes(n));
    return;
  }
  const Workspace second(context, Op::sort, 8 * n);
  { const Workspace keys(context, Op::sort, 4 * n), scratch(context, Op::sort, pairs_bytes(n)); }
  // By rows alone, of which one pass tells all.
  const Workspace scratch(context, Op::sort, 2048 + 1024 * divide_up(n, is_hopper ? 5760 : 3840) + 511);
}

}  // namespace

TopK topk_of_rows(const Tensor& x, std::int64_t k) {
  Context& context = x.context();
  const std::int64_t rows = x.size(0), length = x.size(1);
  TopK result;
  result.values = empty(context, Op::topk, {rows, k}, x.dtype());
  result.indices = integers(context, Op::topk, {rows, k});
  if (is_long(rows, length)) search_in_blocks(context, rows, length);
  if (k <= kMostSortedInOneBlock) return result;
  Tensor sorted_indices = integers(context, Op::sort, {rows, k});
  const Tensor sorted_values = empty(context, Op::sort, {rows, k}, x.dtype());
  sort_rows(context, rows, k);
  { const Tensor gathered = integers(context, Op::gather, {rows, k}); }
  return result;
}

}  // namespace oometer
