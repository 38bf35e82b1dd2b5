#include "ops/logsumexp.h"

#include <utility>

#include "ops/ops.h"
#include "tensor/node.h"

/// ATen/native/ReduceOps.cpp, logsumexp_out_impl; FunctionsManual.cpp, logsumexp_backward (2.15).
namespace oometer {

Tensor logsumexp(const Tensor& given, bool keepdim) {
  const Tensor x = autocast_float32(given);
  Record record(Op::sum,
                [](Backward& b) {
                  const Tensor& self = b.saved(0);
                  const bool kept = b.node.integers[0] != 0;
                  const Tensor grad = kept ? b.grad() : unsqueeze(b.grad(), -1),
                               result = kept ? b.saved(1) : unsqueeze(b.saved(1), -1);
                  const Tensor difference = sub(self, result);
                  const Tensor softmax = exp(difference);
                  b.give(0, mul(grad, softmax));
                },
                {&x});
  if (record) record->integers[0] = keepdim ? 1 : 0;
  record.save(x);
  Tensor maxes = reduce(Op::maximum, x, {-1}, true, x.dtype());
  {
    const Tensor magnitudes = pointwise(Op::abs, {&maxes}, maxes.dtype());
    const Tensor are_infinite = pointwise(Op::eq, {&magnitudes}, DType::boolean);
  }
  Tensor result;
  {
    const Tensor shifted = pointwise(Op::sub, {&x, &maxes}, x.dtype());  // exp_ in place
    result = reduce(Op::sum, shifted, {-1}, keepdim, x.dtype());
  }
  record.save_output(result);
  return record.output(std::move(result));
}

}  // namespace oometer
