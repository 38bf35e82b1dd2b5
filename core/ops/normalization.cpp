#include "autograd/node.h"
#include "ops/ops.h"

/// ATen/native/cuda/layer_norm_kernel.cu (2.15).
namespace oometer {

namespace {

Tensor contiguous_copy(Op op, const Tensor& x) {
  return x.is_contiguous() ? x : empty(x.context(), op, x.sizes(), x.dtype());
}

void layer_norm_backward(Backward& b) {
  const Tensor input = b.saved(0), mean = b.saved(1), rstd = b.saved(2), weight = b.saved(3);
  const Tensor grad = contiguous_copy(Op::native_layer_norm_backward, b.grad());
  const Tensor x = contiguous_copy(Op::native_layer_norm_backward, input);
  Tensor grad_input = b.wants(0) ? empty_like(Op::native_layer_norm_backward, x) : Tensor();
  Tensor grad_weight = b.wants(1) ? empty_like(Op::native_layer_norm_backward, weight) : Tensor();
  Tensor grad_bias = b.wants(2) ? empty_like(Op::native_layer_norm_backward, weight) : Tensor();
  b.give(0, std::move(grad_input));
  b.give(1, std::move(grad_weight));
  b.give(2, std::move(grad_bias));
}

}  // namespace

Tensor layer_norm(const Tensor& x_in, const Tensor& weight_in, const Tensor& bias_in) {
  // cached_cast(...) of each argument, as gcc evaluates them: the last one first.
  const Tensor bias = autocast_float32(bias_in), weight = autocast_float32(weight_in), x = autocast_float32(x_in);
  Record record(Op::native_layer_norm, layer_norm_backward, {&x, &weight, &bias});
  Context& context = x.context();
  record.save(x);
  Shape rows = x.sizes();
  rows[-1] = 1;
  const Tensor copy = contiguous_copy(Op::native_layer_norm, x);
  Tensor result = empty_like(Op::native_layer_norm, copy);
  // Statistics in the accumulation type: float32 for halves.
  const Tensor mean = empty(context, Op::native_layer_norm, rows, DType::float32);
  const Tensor rstd = empty(context, Op::native_layer_norm, rows, DType::float32);
  record.save_output(mean);
  record.save_output(rstd);
  record.save(weight);
  record.save(bias);  // for its type alone
  return record.output(std::move(result));
}

}  // namespace oometer
