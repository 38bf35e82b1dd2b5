#include <algorithm>

#include "ops/launch.h"
#include "ops/ops.h"
#include "ops/vision.h"
#include "tensor/kernel.h"
#include "tensor/node.h"

/// ATen/native/cuda/layer_norm_kernel.cu (2.15).
namespace oometer {

namespace {

Tensor contiguous_copy(Op op, const Tensor& x) {
  return x.is_contiguous() ? x : empty(x.context(), op, x.sizes(), x.dtype());
}

void layer_norm_backward(Backward& b) {
  const Tensor input = b.saved(0), mean = b.saved(1), rstd = b.saved(2), weight = b.saved(3);
  const Tensor x = contiguous_copy(Op::native_layer_norm_backward, input);
  Tensor grad_input = b.wants(0) ? empty_like(Op::native_layer_norm_backward, x) : Tensor();
  if (grad_input) reads(Op::native_layer_norm_backward, grad_input, {&x, &b.grad(), &mean, &rstd, &weight});
  Tensor grad_weight = b.wants(1) ? empty_like(Op::native_layer_norm_backward, weight) : Tensor();
  if (grad_weight) reads(Op::native_layer_norm_backward, grad_weight, {&x, &b.grad(), &mean, &rstd});
  Tensor grad_bias =
      b.wants(2) ? empty(b.context, Op::native_layer_norm_backward, b.input_sizes(2), b.input_dtype(2)) : Tensor();
  const Tensor grad = contiguous_copy(Op::native_layer_norm_backward, b.grad());
  b.give(0, std::move(grad_input));
  b.give(1, std::move(grad_weight));
  b.give(2, std::move(grad_bias));
}

}  // namespace

Tensor layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias) { return layer_norm(x, weight, bias, 1); }

Tensor layer_norm(const Tensor& x_in, const Tensor& weight_in, const Tensor& bias_in, int dims) {
  // cached_cast(...) of each argument, as gcc evaluates them: the last one first.
  const Tensor bias = autocast_float32(bias_in), weight = autocast_float32(weight_in), x = autocast_float32(x_in);
  Record record(Op::native_layer_norm, layer_norm_backward, {&x, &weight, &bias});
  Context& context = x.context();
  if (bias) record.save(bias, 4);  // for its type alone; in the order of their names
  record.save(x, 0);
  if (weight) record.save(weight, 3);
  Shape rows = x.sizes();
  for (int i = 1; i <= dims; ++i) rows[-i] = 1;
  const Tensor copy = contiguous_copy(Op::native_layer_norm, x);
  Tensor result = empty_like(Op::native_layer_norm, copy);
  // Statistics in the accumulation type: float32 for halves.
  const Tensor mean = empty(context, Op::native_layer_norm, rows, DType::float32);
  const Tensor rstd = empty(context, Op::native_layer_norm, rows, DType::float32);
  record.save_output(mean, 1);
  record.save_output(rstd, 2);
  return record.output(std::move(result));
}

// --- rms_norm: native/layer_norm.cpp, cuda/layer_norm_kernel.cu -------------------------

static void rms_norm_backward(Backward& b) {
  constexpr Op op = Op::fused_rms_norm_backward;
  const Tensor x = contiguous_copy(op, b.saved(0)), weight = b.saved(2);
  Tensor grad_input = b.wants(0) ? empty_like(op, x) : Tensor();
  if (grad_input) reads(op, grad_input, {&x, &b.grad(), &weight});
  Tensor grad_weight = b.wants(1) ? empty_like(op, weight) : Tensor();
  if (grad_weight) reads(op, grad_weight, {&x, &b.grad()});
  const Tensor grad = contiguous_copy(op, b.grad());
  b.give(0, std::move(grad_input));
  b.give(1, std::move(grad_weight));
}

Tensor rms_norm(const Tensor& x, const Tensor& weight, int dims) {
  Context& context = x.context();
  if (!context.behaviours.fused_rms_norm) {
    std::vector<int> last;
    for (int i = x.ndim() - dims; i < x.ndim(); ++i) last.push_back(i);
    const Tensor rstd = rsqrt(add_in_place(mean(pow(x, 2), last, true), {}));
    Tensor result = mul(x, rstd);
    if (weight) result = mul(result, weight);
    return result;
  }
  constexpr Op op = Op::fused_rms_norm;
  Record record(op, rms_norm_backward, {&x, &weight});
  record.save(x, 0);
  if (weight) record.save(weight, 2);
  Shape rows = x.sizes();
  for (int i = 1; i <= dims; ++i) rows[-i] = 1;
  const Tensor copy = contiguous_copy(op, x);
  Tensor result = empty_like(op, copy);
  const Tensor rstd = empty(context, op, rows, DType::float32);
  record.save_output(rstd, 1);
  return record.output(std::move(result));
}

// --- batch normalisation: native/Normalization.cpp, cuda/Normalization.cu and .cuh ------

namespace {

/// flexible_launch_configs with coop_flag: the scratch memory of a sum over `rows` in channels-last order, `values` a
/// channel and block of rows, and one semaphore a block of channels.
Staging channels_last_staging(std::int64_t rows, std::int64_t channels, std::int64_t values) {
  constexpr std::int64_t kMaxBlock = 512, kTile = 32, kPerThread = 16, kMaxRows = 128;
  std::int64_t block_x = std::min(last_pow2(channels), kTile);
  const std::int64_t block_y = std::min(last_pow2(divide_up(rows, kPerThread)), kMaxBlock / block_x);
  if (block_x * block_y != kMaxBlock) block_x = std::min(last_pow2(channels), kMaxBlock / block_y);
  const std::int64_t grid_y = std::min(divide_up(rows, block_y * kPerThread), kMaxRows);
  if (grid_y < 8) return {};
  return {checked_product(4 * values * grid_y, channels), 4 * divide_up(channels, block_x)};
}

void batch_norm_backward(Backward& b) {
  constexpr Op op = Op::batch_norm_backward;
  const Tensor& x = b.saved(0);
  Context& context = b.context;
  const std::int64_t channels = x.size(1);
  const bool stages = b.node.integers[0] != 0 && !context.behaviours.cudnn && is_channels_last(x);
  const auto per_channel = [&](DType dtype) { return empty(context, op, {channels}, dtype); };
  const auto like_weight = [&](unsigned i) { return b.wants(i) ? per_channel(b.input_dtype(i)) : Tensor(); };
  Tensor grad_input, grad_weight, grad_bias;
  if (stages) {
    // batch_norm_backward_reduce, then batch_norm_backward_elemt
    const Tensor grad = is_channels_last(b.grad()) ? b.grad() : empty_like(op, x);
    const Tensor sum_dy = per_channel(DType::float32), sum_dy_xmu = per_channel(DType::float32);
    grad_weight = like_weight(1);
    grad_bias = like_weight(2);
    stage(context, op, channels_last_staging(x.numel() / channels, channels, 2));
    if (b.wants(0)) {
      grad_input = empty_like(op, x);
      reads(op, grad_input, {&x, &x, &b.grad(), &b.grad()});  // once for the sums, once for the gradient
    }
  } else {
    // cuDNN takes it densely; the native kernel any strides.
    const Tensor grad = context.behaviours.cudnn ? contiguous_copy(op, b.grad()) : b.grad();
    if (b.wants(0)) {
      grad_input = empty_like(op, x);
      reads(op, grad_input, {&x, &x, &b.grad(), &b.grad()});  // once for the sums, once for the gradient
    }
    grad_weight = like_weight(1);
    grad_bias = like_weight(2);
  }
  b.give(0, std::move(grad_input));
  b.give(1, std::move(grad_weight));
  b.give(2, std::move(grad_bias));
}

void group_norm_backward(Backward& b) {
  constexpr Op op = Op::native_group_norm_backward;
  const Tensor &x = b.saved(0), &mean = b.saved(1), &weight = b.saved(3);
  Context& context = b.context;
  const Tensor grad = contiguous_copy(op, b.grad());
  Tensor grad_input = b.wants(0) ? empty_like(op, x) : Tensor();
  Tensor grad_weight = b.wants(1) ? empty_like(op, weight) : Tensor();
  Tensor grad_bias = b.wants(2) ? empty(context, op, {x.size(1)}, b.input_dtype(2)) : Tensor();
  const Shape channels{x.size(0), x.size(1)};
  const Tensor ds = empty(context, op, channels, DType::float32), db = empty(context, op, channels, DType::float32);
  if (grad_input) {
    const Tensor c2 = empty(context, op, mean.sizes(), DType::float32),
                 c3 = empty(context, op, mean.sizes(), DType::float32);
    const Tensor c1 = weight ? empty(context, op, channels, DType::float32) : Tensor();
  }
  b.give(0, std::move(grad_input));
  b.give(1, std::move(grad_weight));
  b.give(2, std::move(grad_bias));
}

}  // namespace

Tensor batch_norm(const Tensor& x_in, const Tensor& weight, const Tensor& bias, bool training) {
  constexpr Op op = Op::batch_norm;
  Context& context = x_in.context();
  // cudnn_batch_norm takes x as it lies in memory, densely (_batch_norm_impl_index).
  const Tensor x = context.behaviours.cudnn && !is_channels_last(x_in) ? contiguous(x_in) : x_in;
  Record record(op, batch_norm_backward, {&x, &weight, &bias});
  if (record) record->integers[0] = training;
  record.save(x, 0);
  if (weight) record.save(weight, 3);
  Tensor result = empty_like(op, x);
  const Tensor mean = empty(context, op, {x.size(1)}, DType::float32),
               invstd = empty(context, op, {x.size(1)}, DType::float32);
  if (training && !context.behaviours.cudnn && is_channels_last(x))
    stage(context, op, channels_last_staging(x.numel() / x.size(1), x.size(1), 4));
  record.save_output(mean, 1);
  record.save_output(invstd, 2);
  return record.output(std::move(result));
}

Tensor group_norm(const Tensor& x_in, std::int64_t groups, const Tensor& weight_in, const Tensor& bias_in) {
  constexpr Op op = Op::native_group_norm;
  const Tensor bias = autocast_float32(bias_in), weight = autocast_float32(weight_in);
  const Tensor x = contiguous(autocast_float32(x_in));
  Record record(op, group_norm_backward, {&x, &weight, &bias});
  record.save(x, 0);
  if (weight) record.save(weight, 3);
  Context& context = x.context();
  Tensor result = empty_like(op, x);
  // param_scalar_type: float32 where only the weights are; half types are summed in float32 beside.
  const bool is_of_one_type = !weight || weight.dtype() == x.dtype();
  const Shape each{x.size(0), groups};
  const DType dtype = is_of_one_type ? x.dtype() : DType::float32;
  const Tensor mean = empty(context, op, each, dtype), rstd = empty(context, op, each, dtype);
  {
    const bool is_half = dtype != DType::float32;
    const Tensor wide_mean = is_half ? empty(context, op, each, DType::float32) : Tensor(),
                 wide_rstd = is_half ? empty(context, op, each, DType::float32) : Tensor();
    const Shape channels{x.size(0), x.size(1)};
    const Tensor a = empty(context, op, channels, DType::float32), b = empty(context, op, channels, DType::float32);
  }
  record.save_output(mean, 1);
  record.save_output(rstd, 2);
  return record.output(std::move(result));
}

}  // namespace oometer
