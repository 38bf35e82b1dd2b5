#include "ops/bloom.h"

#include <utility>

#include "ops/ops.h"
#include "tensor/node.h"

namespace oometer {

namespace {

/// torch.tanh(0.79788456 * x * (1 + 0.044715 * x * x))
Tensor bloom_tanh(const Tensor& x) {
  Tensor inner = mul_scalar(x);
  Tensor cube = mul_scalar(x);
  cube = mul(cube, x);
  cube = add_scalar(cube);
  Tensor product = mul(inner, cube);
  inner.reset();
  cube.reset();
  return tanh(product);
}

void bloom_gelu_back(Backward& b) {
  const Tensor& x = b.saved(0);
  const Tensor tanh_out = bloom_tanh(x);
  Tensor left = mul_scalar(x);
  {
    Tensor slope = mul(tanh_out, tanh_out);
    slope = add_scalar(slope);
    Tensor factor = mul_scalar(x);
    factor = mul(factor, x);
    factor = add_scalar(factor);
    Tensor product = mul(slope, factor);
    slope.reset();
    factor.reset();
    left = mul(left, product);
  }
  Tensor ff;
  {
    Tensor right = add_scalar(tanh_out);
    right = mul_scalar(right);
    ff = add(left, right);
    left.reset();
  }
  b.give(0, mul(ff, b.grad()));
}

}  // namespace

Tensor bloom_gelu(const Tensor& x) {
  Record record(Op::gelu, bloom_gelu_back, {&x});
  record.save(x);
  Context& context = x.context();
  const NoGrad no_grad(context);
  Tensor half = mul_scalar(x);
  Tensor result = bloom_tanh(x);
  result = add_scalar(result);
  Tensor output = mul(half, result);
  half.reset();
  result.reset();
  return record.output(std::move(output));
}

}  // namespace oometer
