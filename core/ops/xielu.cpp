#include "ops/xielu.h"

#include <utility>

#include "ops/ops.h"
#include "tensor/node.h"

namespace oometer {

Tensor softplus(const Tensor& argument) {
  const Tensor x = autocast_float32(argument);
  Record record(Op::softplus,
                [](Backward& b) {
                  b.give(0, pointwise(Op::softplus_backward, {&b.grad(), &b.saved(0)}, b.grad().dtype()));
                },
                {&x});
  record.save(x);
  return record.output(empty_like(Op::softplus, x));
}

Tensor expm1(const Tensor& argument) {
  const Tensor x = autocast_float32(argument);
  // grad * (result + 1)
  Record record(Op::expm1,
                [](Backward& b) {
                  const Tensor slope = add_scalar(b.saved(0));
                  b.give(0, mul(b.grad(), slope));
                },
                {&x});
  Tensor result = empty_like(Op::expm1, x);
  record.save_output(result);
  return record.output(std::move(result));
}

}  // namespace oometer
