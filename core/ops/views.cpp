#include <optional>

#include "ops/ops.h"
#include "tensor/node.h"

namespace oometer {

namespace {

/// The strides of a view of other sizes, if there are any (ATen/TensorUtils.cpp, computeStride).
std::optional<Shape> view_strides(const Tensor& x, const Shape& sizes) {
  const Shape &old_sizes = x.sizes(), &old_strides = x.strides();
  if (x.numel() == 0 || x.is_contiguous()) return contiguous_strides(sizes);
  Shape strides = sizes;
  int view_dim = sizes.ndim() - 1;
  std::int64_t chunk_base = old_strides[-1], tensor_numel = 1, view_numel = 1;
  for (int dim = old_sizes.ndim() - 1; dim >= 0; --dim) {
    tensor_numel *= old_sizes[dim];
    // A chunk ends where the next dimension does not continue it.
    if (dim != 0 && (old_sizes[dim - 1] == 1 || old_strides[dim - 1] == tensor_numel * chunk_base)) continue;
    while (view_dim >= 0 && (view_numel < tensor_numel || sizes[view_dim] == 1)) {
      strides[view_dim] = view_numel * chunk_base;
      view_numel *= sizes[view_dim];
      --view_dim;
    }
    if (view_numel != tensor_numel) return std::nullopt;
    if (dim > 0) {
      chunk_base = old_strides[dim - 1];
      tensor_numel = view_numel = 1;
    }
  }
  if (view_dim != -1) return std::nullopt;
  return strides;
}

/// A view whose backward is a reshape of the gradient.
Tensor reshaping_view(const Tensor& x, const Shape& sizes, const Shape& strides) {
  Record record(Op::none, [](Backward& b) { b.give(0, reshape(b.grad(), b.node.sizes)); }, {&x});
  if (record) record->sizes = x.sizes();
  return record.output(make_view(x, sizes, strides));
}

Tensor zeros_like_shape(Backward& b, Op op) { return empty(b.context, op, b.node.sizes, b.grad().dtype()); }

}  // namespace

Tensor make_view(const Tensor& x, const Shape& sizes, const Shape& strides) {
  Tensor result = alias(x, sizes, strides);
  result->base = x->base ? x->base : x;
  return result;
}

Tensor view(const Tensor& x, const Shape& sizes) {
  return reshaping_view(x, sizes, view_strides(x, sizes).value_or(contiguous_strides(sizes)));
}

Tensor reshape(const Tensor& x, const Shape& sizes) {
  if (const auto strides = view_strides(x, sizes)) return reshaping_view(x, sizes, *strides);
  return unsafe_view(contiguous(x), sizes);
}

Tensor unsafe_view(Tensor x, const Shape& sizes) {  // NOLINT(performance-unnecessary-value-param): the caller's
  Record record(Op::none, [](Backward& b) { b.give(0, reshape(b.grad(), b.node.sizes)); }, {&x});
  if (record) record->sizes = x.sizes();
  return record.output(alias(x, sizes, view_strides(x, sizes).value_or(contiguous_strides(sizes))));
}

Tensor transpose(const Tensor& x, int dim0, int dim1) {
  Record record(
      Op::none,
      [](Backward& b) {
        b.give(0, transpose(b.grad(), static_cast<int>(b.node.integers[0]), static_cast<int>(b.node.integers[1])));
      },
      {&x});
  if (record) {
    record->integers[0] = dim0;
    record->integers[1] = dim1;
  }
  Shape sizes = x.sizes(), strides = x.strides();
  std::swap(sizes[dim0], sizes[dim1]);
  std::swap(strides[dim0], strides[dim1]);
  return record.output(make_view(x, sizes, strides));
}

Tensor unsqueeze(const Tensor& x, int dim) {
  if (dim < 0) dim += x.ndim() + 1;
  Shape sizes = x.sizes(), strides = x.strides();
  strides.insert(dim, dim < sizes.ndim() ? checked_product(sizes[dim], strides[dim]) : 1);
  sizes.insert(dim, 1);
  return reshaping_view(x, sizes, strides);
}

Tensor expand(const Tensor& x, const Shape& sizes) {
  Record record(Op::none, [](Backward& b) { b.give(0, sum_to(b.grad(), b.node.sizes)); }, {&x});
  if (record) record->sizes = x.sizes();
  Shape strides = sizes;
  for (int i = 1; i <= sizes.ndim(); ++i) {
    const bool kept = i <= x.ndim() && x.size(-i) == sizes[-i];
    strides[-i] = kept ? x.strides()[-i] : 0;
  }
  return record.output(make_view(x, sizes, strides));
}

Tensor slice(const Tensor& x, int dim, std::int64_t start, std::int64_t length) {
  // slice_backward: zeros of the whole input, the gradient copied into its place.
  Record record(Op::none, [](Backward& b) { b.give(0, zeros_like_shape(b, Op::slice_backward)); }, {&x});
  if (record) record->sizes = x.sizes();
  Shape sizes = x.sizes();
  sizes[dim] = length;
  Tensor view = make_view(x, sizes, x.strides());
  view->storage_offset += checked_product(start, x.strides()[dim]);
  return record.output(std::move(view));
}

Tensor select(const Tensor& x, int dim, std::int64_t index) {
  Record record(Op::none, [](Backward& b) { b.give(0, zeros_like_shape(b, Op::select_backward)); }, {&x});
  if (record) record->sizes = x.sizes();
  Shape sizes, strides;
  const int dropped = dim < 0 ? dim + x.ndim() : dim;
  for (int i = 0; i < x.ndim(); ++i) {
    if (i == dropped) continue;
    sizes.push_back(x.size(i));
    strides.push_back(x.strides()[i]);
  }
  Tensor view = make_view(x, sizes, strides);
  view->storage_offset += checked_product(index < 0 ? index + x.size(dropped) : index, x.strides()[dropped]);
  return record.output(std::move(view));
}

Tensor contiguous(const Tensor& x) {
  if (x.is_contiguous()) return x;
  Record record(Op::clone, [](Backward& b) { b.give(0, b.grad()); }, {&x});
  return record.output(empty(x.context(), Op::clone, x.sizes(), x.dtype()));
}

}  // namespace oometer
