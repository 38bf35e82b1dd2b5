#include "ops/causal_conv1d.h"

#include "ops/ops.h"
#include "tensor/kernel.h"
#include "tensor/node.h"

namespace oometer {

namespace {

bool is_channel_last(const Tensor& x) { return x.strides()[1] == 1 && x.strides()[2] > 1; }

Tensor in_layout_of(const Tensor& x, const Tensor& gradient) {
  if (is_channel_last(x))
    return gradient.strides()[1] == 1 ? gradient : transpose(contiguous(transpose(gradient, 1, 2)), 1, 2);
  return gradient.strides()[2] == 1 ? gradient : contiguous(gradient);
}

void causal_conv1d_backward(Backward& b) {
  const Tensor &x = b.saved(0), &weight = b.saved(1), &bias = b.saved(2);
  const Tensor dense = b.grad().strides()[2] != 1 && b.grad().strides()[1] != 1 ? contiguous(b.grad()) : b.grad();
  const Tensor dx = empty_like(Op::causal_conv1d, x);
  Tensor dweight = empty(b.context, Op::zeros, weight.sizes(), DType::float32), dbias;
  if (bias) dbias = empty(b.context, Op::zeros, bias.sizes(), DType::float32);
  {
    const Tensor dout = in_layout_of(x, dense);
    kernel(Op::causal_conv1d, {&x, &weight, &dout}, dweight);
  }
  dweight = to(dweight, weight.dtype());
  if (bias) dbias = to(dbias, bias.dtype());
  if (b.wants(0)) b.give(0, dx);
  if (b.wants(1)) b.give(1, dweight);
  if (bias && b.wants(2)) b.give(2, dbias);
}

}  // namespace

Tensor causal_conv1d_fn(const Tensor& x_in, const Tensor& weight, const Tensor& bias) {
  Record record(Op::causal_conv1d, causal_conv1d_backward, {&x_in, &weight, &bias});
  const NoGrad no_grad(x_in.context());
  const Tensor x = x_in.strides()[2] != 1 && x_in.strides()[1] != 1 ? contiguous(x_in) : x_in;
  const Tensor out = empty_like(Op::causal_conv1d, x);
  record.save(x);
  record.save(weight);
  if (bias)
    record.save(bias);
  else
    record.skip();
  return record.output(out);
}

Tensor causal_conv1d_update(const Tensor& x, const Tensor& conv_state) {
  const Tensor out = empty_like(Op::causal_conv1d, x);
  kernel(Op::causal_conv1d, {&x}, conv_state);
  return out;
}

}  // namespace oometer
