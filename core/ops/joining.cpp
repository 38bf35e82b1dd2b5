#include <algorithm>

#include "ops/ops.h"
#include "ops/vision.h"
#include "tensor/node.h"

namespace oometer {

namespace {

/// cat_compute_output_memory_format (TensorShape.h): images laid out channels last, if all are
bool joins_channels_last(const Tensor& x) { return x.ndim() == 4 && !x.is_contiguous() && is_channels_last(x); }

}  // namespace

Tensor cat(const std::vector<Tensor>& tensors, int dim) {
  // CatBackward0: each input's gradient is a narrow view of the incoming one.
  Record record(
      Op::cat,
      [](Backward& b) {
        const int along = static_cast<int>(b.node.integers[0]);
        for (unsigned i = 0; i < b.node.edges.size(); ++i)
          if (b.wants(i)) b.give(i, slice(b.grad(), along, 0, b.input_sizes(i)[along]));
      },
      tensors);
  Shape sizes = tensors.front().sizes();
  sizes[dim] = 0;
  DType dtype = tensors.front().dtype();
  for (const Tensor& tensor : tensors) {
    sizes[dim] += tensor.size(dim);
    if (tensor.dtype() == DType::float32 && is_half(dtype)) dtype = DType::float32;  // result_type
  }
  if (record) record->integers[0] = dim;
  const bool channels_last = std::all_of(tensors.begin(), tensors.end(), joins_channels_last);
  if (channels_last && dtype == tensors.front().dtype())
    return record.output(in_order_of(tensors.front(), Op::cat, sizes, true));
  return record.output(empty(tensors.front().context(), Op::cat, sizes, dtype));
}

Tensor stack(const TensorList& tensors, int dim) {
  Record record(
      Op::stack,
      [](Backward& b) {
        for (unsigned i = 0; i < b.node.edges.size(); ++i)
          if (b.wants(i)) b.give(i, select(b.grad(), static_cast<int>(b.node.integers[0]), i));
      },
      tensors);
  if (record) record->integers[0] = dim;
  Shape sizes = tensors.front().sizes();
  sizes.insert(dim, static_cast<std::int64_t>(tensors.size()));
  DType dtype = tensors.front().dtype();
  for (const Tensor& tensor : tensors)
    if (tensor.dtype() == DType::float32 && is_half(dtype)) dtype = DType::float32;  // result_type
  return record.output(empty(tensors.front().context(), Op::stack, sizes, dtype));
}

Tensor split(const Tensor& x) {
  // SplitWithSizesBackward0 joins the pieces' gradients.
  Record record(Op::split, [](Backward& b) { b.give(0, empty(b.context, Op::cat, b.node.sizes, b.grad().dtype())); },
                {&x});
  if (record) record->sizes = x.sizes();
  return record.output(alias(x, x.sizes(), x.strides()));
}

TensorList split(const Tensor& x, const std::vector<std::int64_t>& sizes, int dim) {
  const BackwardFunction backward = [](Backward& b) {
    TensorList zeros;  // for the pieces that nothing came from
    bool channels_last = true;
    for (unsigned i = 0; i < b.node.metadata.size(); ++i) {
      channels_last = channels_last && b.grad(i) && joins_channels_last(b.grad(i));
      if (!b.grad(i)) zeros.push_back(empty(b.context, Op::zeros, b.node.metadata[i].sizes, b.input_dtype(0)));
    }
    b.give(0, channels_last ? in_order_of(b.grad(0), Op::cat, b.node.sizes, true)
                            : empty(b.context, Op::cat, b.node.sizes, b.input_dtype(0)));
  };
  Record record(Op::split, backward, {&x});
  if (record) record->sizes = x.sizes();
  TensorList pieces;
  pieces.reserve(sizes.size());
  Shape of_piece = x.sizes();
  std::int64_t start = 0;
  for (const std::int64_t size : sizes) {
    of_piece[dim] = size;
    Tensor piece = make_view(x, of_piece, x.strides());
    piece->storage_offset += checked_product(start, x.strides()[dim]);
    start += size;
    pieces.push_back(record.output(std::move(piece)));
  }
  return pieces;
}

TensorList unbind(const Tensor& x, int dim) {
  // unbind_backward: a zero, expanded, for each that nothing came from, then all stacked.
  const BackwardFunction backward = [](Backward& b) {
    TensorList zeros;
    for (unsigned i = 0; i < b.node.metadata.size(); ++i)
      if (!b.grad(i)) zeros.push_back(empty(b.context, Op::zeros, {}, b.input_dtype(0)));
    b.give(0, empty(b.context, Op::stack, b.node.sizes, b.input_dtype(0)));
  };
  Record record(Op::split, backward, {&x});
  if (record) record->sizes = x.sizes();
  TensorList slices;
  Shape sizes, strides;
  for (int i = 0; i < x.ndim(); ++i) {
    if (i == dim) continue;
    sizes.push_back(x.size(i));
    strides.push_back(x.strides()[i]);
  }
  for (std::int64_t i = 0; i < x.size(dim); ++i) {
    Tensor slice = make_view(x, sizes, strides);
    slice->storage_offset += checked_product(i, x.strides()[dim]);
    slices.push_back(record.output(std::move(slice)));
  }
  return slices;
}

Tensor cat_unbound(const Tensor& x) {
  // UnbindBackward0 stacks the narrow views that CatBackward0 gives.
  Record record(Op::stack, [](Backward& b) { b.give(0, empty(b.context, Op::stack, b.node.sizes, b.grad().dtype())); },
                {&x});
  if (record) record->sizes = x.sizes();
  Shape sizes;
  sizes.push_back(checked_product(x.size(0), x.size(1)));
  for (int i = 2; i < x.ndim(); ++i) sizes.push_back(x.size(i));
  return record.output(empty(x.context(), Op::cat, sizes, x.dtype()));
}

}  // namespace oometer
