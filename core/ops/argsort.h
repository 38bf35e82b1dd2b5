#pragma once

#include <cstdint>

#include "ops/integers.h"

namespace oometer {

/// Numbers of a row that one block of threads sorts, without memory of its own (ATen/native/cuda/Sort.cpp,
/// should_use_small_sort).
constexpr std::int64_t kMostSortedInOneBlock = 4096;

/// torch.argsort(x, dim=1), of such rows.
inline Tensor argsort(const Tensor& x) {
  Context& context = x.context();
  const Tensor values = empty_like(Op::sort, x);
  Tensor indices = integers(context, Op::sort, x.sizes());
  const Tensor range = integers(context, Op::arange, {x.size(1)});
  return indices;
}

}  // namespace oometer
