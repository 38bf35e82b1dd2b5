#include "models/kit/adaptive_avg_pool.h"

#include <utility>

#include "ops/ops.h"
#include "ops/vision.h"
#include "tensor/node.h"

namespace oometer {

Tensor adaptive_avg_pool(const Tensor& x, std::int64_t side) {
  if (side == 1) return mean_of_images(x);
  const bool channels_last = !x.is_contiguous() && is_channels_last(x);
  Record record(Op::adaptive_avg_pool2d,
                [](Backward& b) {
                  constexpr Op op = Op::adaptive_avg_pool2d_backward;
                  const bool is_last = b.node.integers[0] != 0;
                  Tensor grad_input = in_order_of(b.saved(0), op, b.saved(0).sizes(), is_last);
                  { const Tensor grad_output = ordered(b.grad(), Op::clone, is_last); }
                  b.give(0, std::move(grad_input));
                },
                {&x});
  if (record) record->integers[0] = channels_last;
  record.save(x);
  const Shape sizes{x.size(0), x.size(1), side, side};
  if (channels_last) return record.output(in_order_of(x, Op::adaptive_avg_pool2d, sizes, true));
  const NoGrad no_grad(x.context());
  const Tensor input = contiguous(x);
  return record.output(empty(x.context(), Op::adaptive_avg_pool2d, sizes, x.dtype()));
}

}  // namespace oometer
