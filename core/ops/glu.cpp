#include "ops/glu.h"

#include "ops/ops.h"
#include "tensor/kernel.h"
#include "tensor/node.h"

namespace oometer {

Tensor glu(const Tensor& x) {
  Record record(Op::sigmoid,
                [](Backward& b) {
                  Tensor grad_input = empty(b.context, Op::sigmoid_backward, b.saved(0).sizes(), b.saved(0).dtype());
                  reads(Op::sigmoid_backward, grad_input, {&b.grad(), &b.saved(0)});
                  b.give(0, std::move(grad_input));
                },
                {&x});
  record.save(x);
  Shape sizes = x.sizes();
  sizes[1] /= 2;
  return record.output(empty(x.context(), Op::sigmoid, sizes, x.dtype()));
}

}  // namespace oometer
