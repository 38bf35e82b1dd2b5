#include "ops/put_row.h"

#include <utility>

#include "ops/ops.h"
#include "tensor/kernel.h"
#include "tensor/node.h"

namespace oometer {

Tensor put_row_in_place(const Tensor& x, const Tensor& mask, const Tensor& value, std::int64_t selected) {
  Record record(Op::index_put,
                [](Backward& b) {
                  const Tensor& masked = b.saved(0);
                  const std::int64_t count = b.node.integers[0], width = b.node.sizes[0];
                  const DType dtype = b.grad().dtype();
                  if (b.wants(0)) {
                    const Tensor zeros = empty(b.context, Op::zeros, {width}, dtype);
                    Tensor self = empty_like(Op::clone, b.grad());
                    { const Tensor indices = nonzero(masked, count); }
                    b.give(0, std::move(self));
                  }
                  if (!b.wants(1)) return;
                  Tensor chosen;
                  {
                    const Tensor indices = nonzero(masked, count);
                    chosen = empty(b.context, Op::index, {count, width}, dtype);
                  }
                  b.give(1, reduce(Op::sum, chosen, {0}, false, dtype));
                },
                {&x, &value});
  record.save(mask);
  { const Tensor indices = nonzero(mask, selected); }
  kernel(Op::index_put, {&value}, value);
  if (!record) return x;
  record->integers[0] = selected;
  record->sizes = value.sizes();
  return record.output(alias(x, x.sizes(), x.strides()));
}

}  // namespace oometer
