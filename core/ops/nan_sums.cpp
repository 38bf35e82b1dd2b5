#include "ops/nan_sums.h"

#include "ops/ops.h"
#include "tensor/node.h"

namespace oometer {

// nansum_backward (FunctionsManual.cpp) leaves out what is no number.
Tensor nansum(const Tensor& x) {
  Record record(Op::sum,
                [](Backward& b) {
                  const Tensor spread = expand(b.grad(), b.saved(0).sizes());
                  Tensor is_nan = pointwise(Op::ne, {&b.saved(0)}, DType::boolean);
                  const Tensor is_number = pointwise(Op::logical_not, {&is_nan}, DType::boolean);
                  is_nan.reset();
                  b.give(0, pointwise(Op::mul, {&spread, &is_number}, b.grad().dtype()));
                },
                {&x});
  record.save(x);
  return record.output(reduce(Op::sum, x, {}, false, x.dtype()));
}

// ReduceOps.cpp
Tensor nanmean(const Tensor& x) {
  Tensor factor;
  {
    const Tensor is_number = pointwise(Op::ne, {&x}, DType::boolean);  // logical_not_ in place
    factor = sum_all(is_number);
  }
  const Tensor total = nansum(x);
  return div(total, factor);
}

}  // namespace oometer
