#pragma once

#include <cstdint>

#include "ops/ops.h"
#include "ops/vision.h"
#include "tensor/tensor_list.h"

/// What trainers of preferences share.
namespace oometer {

/// The chosen answers' half of a batch, and the rejected ones': views.
struct Pair {
  Tensor chosen, rejected;
};
inline Pair halves(const Tensor& x) {
  const std::int64_t half = x.size(0) / 2;
  TensorList both = split(x, {half, half}, 0);
  return {both[0], both[1]};
}

/// x.mean().item(), which is logged.
inline void log_mean(const Tensor& x) { const Tensor mean = mean_all(x); }

}  // namespace oometer
