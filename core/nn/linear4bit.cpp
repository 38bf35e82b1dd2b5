#include "nn/linear4bit.h"

#include <utility>

#include "nn/module.h"
#include "ops/ops.h"
#include "tensor/node.h"

namespace oometer {

namespace {

// MatMul4Bit; its forward is _dequant_linear_fallback (backends/cuda/ops.py).
Tensor matmul_4bit(const Tensor& x, const std::shared_ptr<const QuantState>& state, const Tensor& bias) {
  Record record(Op::matmul_4bit, nullptr, {&x});
  Context& context = x.context();
  Tensor result;
  {
    const NoGrad no_grad(context);
    Tensor absmax, shifted;
    if (state->nested) {
      absmax = empty(context, Op::dequantize, {state->blocks()}, DType::float32);
      shifted = empty_like(Op::add, absmax);
    }
    const Tensor weight = empty(context, Op::dequantize, state->shape, x.dtype());
    const WorkMark begin = context.log.work.mark();
    result = linear(x, weight, bias);
    // A custom operator runs it (bitsandbytes::dequant_linear): FlopCounterMode does not look inside.
    WorkLog& log = context.log.work;
    for (std::size_t i = begin.work; i < log.works.size(); ++i)
      if (log.works[i].product != 0) log.products[log.works[i].product].counted = 0;
  }
  if (!record) return result;
  record->custom = std::make_unique<std::function<void(Backward&)>>([state](Backward& b) {
    Tensor absmax;
    if (state->nested) absmax = empty(b.context, Op::dequantize, {state->blocks()}, DType::float32);
    Tensor weight = empty(b.context, Op::dequantize, state->shape, state->dtype);
    absmax.reset();
    weight = to(weight, b.grad().dtype());
    b.give(0, matmul(b.grad(), weight));
  });
  return record.output(std::move(result));
}

}  // namespace

Tensor linear_4bit(const Tensor& x_in, const std::shared_ptr<const QuantState>& weight, const Tensor& bias) {
  const DType dtype = x_in.dtype();
  const Tensor x = to(x_in, weight->compute_dtype);
  if (bias) cast_parameter(bias, x.dtype());  // bias.data = bias.data.to(x.dtype): once
  Tensor result = matmul_4bit(x, weight, bias);
  result = to(result, dtype);
  return result;
}

}  // namespace oometer
