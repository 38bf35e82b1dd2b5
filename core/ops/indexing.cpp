#include "autograd/node.h"
#include "cuda/cub.h"
#include "ops/ops.h"

/// ATen/native/cuda/IndexKernel.cpp, Nonzero.cu; derivatives.yaml and FunctionsManual.cpp (2.15).
namespace oometer {

namespace {

/// grad.masked_select(mask): the mask, expanded to the gradient's shape, becomes a list of indices (three int64 an
/// element), then the elements are gathered.
Tensor masked_select(const Tensor& grad, std::int64_t selected) {
  Context& context = grad.context();
  Tensor indices;
  if (context.behaviours.dispatch_mode) {
    // The stand-in for a kernel that counts: what the recorded cases ran instead.
    indices = empty(context, Op::nonzero, {grad.ndim(), selected}, DType::int64);
  } else {
    const Tensor mask = empty(context, Op::nonzero, grad.sizes(), DType::boolean);
    const Workspace count(context, Op::nonzero, 4);
    { const Workspace sum(context, Op::nonzero, cub_reduce_bytes(context.device.sm_count)); }
    indices = empty(context, Op::nonzero, {grad.ndim(), selected}, DType::int64);
    const Workspace select(context, Op::nonzero, cub_select_bytes(grad.numel(), context.device.major));
  }
  return empty(context, Op::masked_select, {selected}, grad.dtype());
}

}  // namespace

Tensor masked_scatter(const Tensor& x, const Tensor& mask, const Tensor& source) {
  Record record(Op::masked_scatter,
                [](Backward& b) {
                  if (b.wants(0)) b.give(0, empty_like(Op::masked_fill, b.grad()));
                  if (b.wants(1)) b.give(1, view(masked_select(b.grad(), numel(b.node.sizes)), b.node.sizes));
                },
                {&x, &source});
  record.save(mask);
  if (record) record->sizes = source.sizes();
  Context& context = x.context();
  Tensor result = empty(context, Op::clone, x.sizes(), x.dtype());
  {
    const Tensor prefix_sum = empty(context, Op::masked_scatter, x.sizes(), DType::int64);
    const Tensor expanded_mask = empty(context, Op::masked_scatter, x.sizes(), DType::boolean);
    const Workspace scan(context, Op::masked_scatter, cub_scan_bytes(x.numel()));
  }
  return record.output(std::move(result));
}

Tensor index(const Tensor& x, const Tensor& rows, const Tensor& columns) {
  // index_backward: zeros of the whole input, then index_put_ with accumulation (index_put_with_sort_kernel).
  Record record(Op::index,
                [](Backward& b) {
                  Context& context = b.context;
                  const Shape count{b.saved(0).numel()};
                  const auto indices = [&](Op op) { return empty(context, op, count, DType::int64); };
                  Tensor zeros = empty(context, Op::zeros, b.node.sizes, b.grad().dtype());
                  Tensor linear;
                  for (int dimension : {0, 1}) {
                    (void)dimension;
                    const Tensor wrapped = indices(Op::index_put);
                    const Tensor strided = indices(Op::mul);
                    if (!linear) linear = strided;
                  }
                  const Tensor sorted = indices(Op::index_put), original = indices(Op::index_put),
                               range = indices(Op::arange);
                  { const Workspace sort(context, Op::index_put, cub_sort_pairs_bytes(count[0])); }
                  b.give(0, std::move(zeros));
                },
                {&x});
  record.save(rows);
  record.save(columns);
  if (record) record->sizes = x.sizes();
  Shape sizes{rows.numel()};
  for (int i = 2; i < x.ndim(); ++i) sizes.push_back(x.size(i));
  return record.output(empty(x.context(), Op::index, sizes, x.dtype()));
}

Tensor pad_last(const Tensor& x) {
  Shape sizes = x.sizes();
  ++sizes[-1];
  return empty(x.context(), Op::constant_pad_nd, sizes, x.dtype());
}

}  // namespace oometer
