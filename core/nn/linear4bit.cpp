#include "nn/linear4bit.h"

#include <utility>

#include "nn/gemm_4bit.h"
#include "nn/module.h"
#include "ops/ops.h"
#include "tensor/kernel.h"
#include "tensor/node.h"

namespace oometer {

Tensor dequantize_4bit(Context& context, const QuantState& state) {
  Tensor absmax;
  if (state.nested) absmax = empty(context, Op::dequantize, {state.blocks()}, DType::float32);
  return empty(context, Op::dequantize, state.shape, state.dtype);
}

namespace {

/// A custom operator runs it (bitsandbytes::gemm_4bit): FlopCounterMode does not look inside.
void count_nothing(WorkLog& log, const WorkMark& begin) {
  for (std::size_t i = begin.work; i < log.works.size(); ++i)
    if (log.works[i].product != 0) log.products[log.works[i].product].counted = 0;
}

/// bitsandbytes::gemm_4bit (backends/cuda/ops.py): one kernel, or _dequant_linear_fallback.
Tensor gemm_4bit(const Tensor& x, const QuantState& state, const Tensor& bias) {
  Context& context = x.context();
  const NoGrad no_grad(context);
  const WorkMark begin = context.log.work.mark();
  const std::int64_t n = state.shape[0], k = state.shape[1], m = x.numel() / k;
  Tensor result;
  if (multiplies_in_4bit(context.device, x.dtype(), m, n, k)) {
    const Tensor rows = contiguous(x);
    Shape sizes = x.sizes();
    sizes[-1] = n;
    result = empty(context, Op::matmul_4bit, sizes, x.dtype());
    const std::int64_t weight = n * k / 2 + touched({&state.absmax, &state.nested_absmax, &state.nested_code});
    gemm_kernel(context, Op::matmul_4bit, {1, m, n, k, x.dtype(), touched({&rows, &bias}) + weight, touched(result)});
  } else {
    Tensor absmax, shifted;
    if (state.nested) {
      absmax = empty(context, Op::dequantize, {state.blocks()}, DType::float32);
      shifted = empty_like(Op::add, absmax);
    }
    const Tensor weight = empty(context, Op::dequantize, state.shape, x.dtype());
    result = linear(x, weight, bias);
  }
  count_nothing(context.log.work, begin);
  return result;
}

// MatMul4Bit, or without gradients its operator alone. A bias has one where FSDP1 flattened it with what trains.
Tensor matmul_4bit(const Tensor& x, const std::shared_ptr<const QuantState>& state, const Tensor& bias) {
  Record record(Op::matmul_4bit, nullptr, {&x, &bias});
  Tensor result = gemm_4bit(x, *state, bias);
  if (!record) return result;
  record->custom = std::make_unique<std::function<void(Backward&)>>([state](Backward& b) {
    Tensor grad_bias;
    if (b.wants(1)) grad_bias = reduce(Op::sum, b.grad(), {0}, false, b.input_dtype(1));
    if (b.wants(0)) {
      Tensor weight = dequantize_4bit(b.context, *state);
      weight = to(weight, b.grad().dtype());
      b.give(0, matmul(b.grad(), weight));
    }
    if (grad_bias) b.give(1, sum_to(grad_bias, b.input_sizes(1)));
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
