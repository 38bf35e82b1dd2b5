#include "ops/float32_rms_norm.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>

#include "ops/ops.h"
#include "ops/vision.h"
#include "rounding.h"
#include "tensor/kernel.h"
#include "tensor/node.h"

namespace oometer {

namespace {

constexpr std::int64_t kWarpSize = 32;

std::int64_t closest_divisor(std::int64_t number, std::int64_t to) {
  std::int64_t closest = 1;
  for (std::int64_t divisor = 1; divisor <= number; ++divisor)
    if (number % divisor == 0 && std::abs(divisor - to) < std::abs(closest - to)) closest = divisor;
  return closest;
}

/// Into how many parts Inductor cuts a sum over rows (torch 2.15, _inductor/choices.py: reduction_split_factor, and
/// _inductor/ir.py: num_splits).
std::int64_t split_factor(const Device& device, std::int64_t rows, std::int64_t columns) {
  constexpr std::int64_t kMost = 512, kPerThread = 4, kPerBlock = 128, kThreads = 8 * kWarpSize;
  const std::int64_t threads = device.sm_count * max_threads_per_sm(device);
  if (rows <= kWarpSize || columns >= device.sm_count * 2 * kWarpSize) return 1;
  std::int64_t size = kWarpSize;
  if (rows * columns >= kMost * threads) {
    const std::int64_t closest = closest_divisor(rows, kMost);
    size = std::abs(closest - kMost) < 50 ? closest : kMost;
  } else if (rows * columns >= kWarpSize * threads) {
    const std::int64_t blocks = divide_up(threads / kThreads, divide_up(columns, kPerBlock));
    const std::int64_t wanted = divide_up(rows, kPerThread * blocks), closest = closest_divisor(rows, wanted);
    size = std::abs(wanted - closest) < 20 ? std::max(closest, kWarpSize) : wanted;
  }
  return divide_up(rows, kPerThread * size);
}

void backward(Backward& b) {
  Tensor x = b.saved(0);
  const Tensor weight = b.saved(1);
  const std::int64_t columns = x.size(-1), rows = x.numel() / columns;
  const auto made = [&](const Shape& sizes, DType dtype) { return empty(b.context, Op::empty, sizes, dtype); };
  Tensor scale;
  if (b.wants(1)) scale = made({rows, 1}, DType::float32);
  Tensor grad_x = made(x.sizes(), x.dtype());
  kernel(Op::mul, {&b.grad(), &x, &weight}, grad_x);
  const std::int64_t parts = b.wants(1) ? split_factor(b.context.device, rows, columns) : 1;
  Tensor partial;
  if (parts > 1) partial = made({parts, columns}, DType::float32);
  if (parts == 1 && b.wants(1)) b.give(1, made({columns}, weight.dtype()));
  scale.reset();
  x.reset();
  b.node.saved[0].reset();
  b.grads.clear();
  if (parts > 1) b.give(1, made({columns}, weight.dtype()));
  if (b.wants(0)) b.give(0, std::move(grad_x));
}

}  // namespace

Tensor float32_rms_norm(const Tensor& x, const Tensor& weight) {
  Record record(Op::fused_rms_norm, backward, {&x, &weight});
  record.save(x);
  record.save(weight);
  const NoGrad no_grad(x.context());
  Tensor result;
  {
    Tensor copy = to(x, DType::float32), weights = to(weight, DType::float32);
    result = rms_norm(copy, weights, 1);
    copy.reset();
    weights.reset();
  }
  return record.output(to(result, x.dtype()));
}

}  // namespace oometer
