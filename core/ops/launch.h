#pragma once

#include <cstdint>

#include "ops/ops.h"
#include "rounding.h"

/// What of a kernel's launch configuration shows in memory: sizes of tiles, the scratch memory of reductions that are
/// split over thread blocks (ATen/native/cuda/Reduce.cuh and Normalization.cuh, PyTorch 2.15).
namespace oometer {

/// The largest power of two that is at most `n`; 1 for less than 1 (at::cuda::detail::lastPow2).
constexpr std::int64_t last_pow2(std::int64_t n) {
  std::int64_t power = 1;
  while (power * 2 <= n) power *= 2;
  return power;
}

/// The smallest power of two that is at least `n` (triton.next_power_of_2).
constexpr std::int64_t next_power_of_2(std::int64_t n) {
  std::int64_t power = 1;
  while (power < n) power *= 2;
  return power;
}

/// Bytes that blocks leave for one another, and that they count each other by; none where one block does it all.
struct Staging {
  std::int64_t buffer = 0, semaphores = 0;
};

/// Takes that memory for the length of one kernel.
inline void stage(Context& context, Op op, const Staging& staging) {
  if (staging.buffer == 0) return;
  const Workspace buffer(context, op, staging.buffer);
  const Workspace semaphores(context, op, staging.semaphores);
}

/// at::mean_out of all of x: `result` has its memory already.
void mean_into(const Tensor& result, const Tensor& x);

}  // namespace oometer
