#include "ops/grid_sample.h"

#include <utility>

#include "tensor/node.h"

namespace oometer {

namespace {

// grid_sampler_2d_backward_cuda makes the grid's gradient whoever asks.
void grid_sample_backward(Backward& b) {
  const Tensor &x = b.saved(0), &grid = b.saved(1);
  Tensor grad_input;
  if (b.wants(0)) grad_input = empty(b.context, Op::zeros_like, x.sizes(), x.dtype());
  Tensor grad_grid = empty(b.context, Op::upsample_backward, grid.sizes(), grid.dtype());
  if (grad_input) b.give(0, std::move(grad_input));
  if (b.wants(1)) b.give(1, std::move(grad_grid));
}

}  // namespace

Tensor grid_sample(const Tensor& x, const Tensor& grid) {
  Record record(Op::upsample, grid_sample_backward, {&x, &grid});
  record.save(x);
  record.save(grid);
  return record.output(empty(x.context(), Op::upsample, {x.size(0), x.size(1), grid.size(1), grid.size(2)}, x.dtype()));
}

}  // namespace oometer
