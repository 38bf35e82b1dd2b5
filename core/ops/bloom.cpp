#include "ops/bloom.h"

#include <utility>

#include "ops/ops.h"
#include "tensor/kernel.h"
#include "tensor/node.h"

namespace oometer {

Tensor baddbmm(const Tensor& input_in, const Tensor& batch1_in, const Tensor& batch2_in, bool scales) {
  const Tensor batch2 = autocast_lower(batch2_in), batch1 = autocast_lower(batch1_in), input = autocast_lower(input_in);
  // maybe_multiply(grad.bmm(batch2.mT), alpha) and maybe_multiply(batch1.mT.bmm(grad), alpha)
  Record record(Op::baddbmm,
                [](Backward& b) {
                  if (b.wants(1)) {
                    const Tensor product = bmm(b.grad(), transpose(b.saved(1), 1, 2));
                    b.give(1, b.node.integers[0] != 0 ? mul_scalar(product) : product);
                  }
                  if (b.wants(2)) {
                    const Tensor product = bmm(transpose(b.saved(0), 1, 2), b.grad());
                    b.give(2, b.node.integers[0] != 0 ? mul_scalar(product) : product);
                  }
                },
                {&input, &batch1, &batch2});
  if (record) record->integers[0] = scales ? 1 : 0;
  record.wants(2) ? record.save(batch1) : record.skip();
  record.wants(1) ? record.save(batch2) : record.skip();
  Context& context = batch1.context();
  Tensor result = empty(context, Op::baddbmm, {batch1.size(0), batch1.size(1), batch2.size(2)}, batch1.dtype());
  const Tensor first = gemm_operand(Op::baddbmm, batch1), second = gemm_operand(Op::baddbmm, batch2);
  const GemmWorkspace workspace(context);
  gemm_kernel(Op::baddbmm, batch1, batch2, result, input);
  return record.output(std::move(result));
}

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
