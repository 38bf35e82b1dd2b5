#include "tensor/tensor.h"

#include <algorithm>
#include <utility>

#include "tensor/context.h"
#include "tensor/kernel.h"

namespace oometer {

void release(StorageImpl* storage) {
  if (--storage->references == 0) storage->context->drop(storage);
}

void release(TensorImpl* impl) {
  if (--impl->references != 0) return;
  Context& context = *impl->storage->context;
  // When the log has ended, what holds nothing but its storage goes with the pools that they lie in.
  if (context.is_finished() && !impl->grad_fn && !impl->base && !impl->grad && !impl->autocast_copy) return;
  StorageImpl* storage = impl->storage;
  Node* node = impl->grad_fn;
  context.tensors.drop(impl);  // base, grad and autocast copy go here
  if (node) release(node);
  release(storage);
}

namespace {

Tensor make(Context& context, StorageImpl* storage, const Shape& sizes, const Shape& strides, DType dtype) {
  return Tensor(context.tensors.make(storage, sizes, strides, dtype));
}

/// Dimensions ordered from the largest stride to the smallest.
std::array<int, Shape::kMaxDims> stride_order(const Shape& sizes, const Shape& strides) {
  std::array<int, Shape::kMaxDims> order{};
  const auto end = order.begin() + sizes.ndim();
  for (int i = 0; i < sizes.ndim(); ++i) order[static_cast<unsigned>(i)] = i;
  // Whether a dimension belongs before one that stands before it; what was expanded (stride 0) stays where it is.
  const auto precedes = [&](int dim, int other) {
    if (strides[dim] == 0 || strides[other] == 0) return 0;
    if (strides[dim] != strides[other]) return strides[dim] > strides[other] ? 1 : -1;
    return sizes[other] < sizes[dim] ? 1 : 0;
  };
  for (auto i = end; i != order.begin();) {  // by insertion, from the last one: a few dimensions
    auto at = --i;
    for (auto j = at + 1; j != end; ++j) {
      const int comparison = precedes(*j, *at);
      if (comparison > 0) {
        std::swap(*at, *j);
        at = j;
      } else if (comparison < 0) {
        break;
      }
    }
  }
  return order;
}

}  // namespace

bool Tensor::is_contiguous() const {
  std::int64_t expected = 1;
  for (int i = ndim() - 1; i >= 0; --i) {
    if (size(i) == 1) continue;
    if (strides()[i] != expected) return false;
    expected = checked_product(expected, size(i));
  }
  return true;
}

bool Tensor::is_non_overlapping_and_dense() const {
  if (is_contiguous()) return true;
  const auto order = stride_order(sizes(), strides());
  std::int64_t expected = 1;
  for (int i = ndim() - 1; i >= 0; --i) {
    const int dim = order[static_cast<unsigned>(i)];
    if (size(dim) == 1) continue;
    if (strides()[dim] != expected) return false;
    expected = checked_product(expected, size(dim));
  }
  return true;
}

namespace {

Tensor allocate(Context& context, Op op, std::int64_t elements, const Shape& sizes, const Shape& strides, DType dtype,
                Role role) {
  const std::int64_t bytes = checked_product(elements, element_size(dtype));
  const Storage storage = context.allocate(op, bytes, dtype, sizes, role);
  writes(context, op, bytes, dtype);
  return make(context, storage.get(), sizes, strides, dtype);
}

}  // namespace

Tensor empty(Context& context, Op op, const Shape& sizes, DType dtype, Role role) {
  // contiguous_strides, which comes to the number of elements.
  Shape strides;
  strides.count = sizes.count;
  std::int64_t elements = 1;
  bool is_empty = false;
  for (unsigned i = sizes.count; i-- > 0;) {
    strides.dims[i] = elements;
    if (sizes.dims[i] > 1) elements = checked_product(elements, sizes.dims[i]);
    is_empty |= sizes.dims[i] == 0;
  }
  return allocate(context, op, is_empty ? 0 : elements, sizes, strides, dtype, role);
}

Tensor empty_strided(Context& context, Op op, const Shape& sizes, const Shape& strides, DType dtype, Role role) {
  return allocate(context, op, numel(sizes), sizes, strides, dtype, role);
}

Tensor empty_like(Op op, const Tensor& like, DType dtype) {
  if (like.is_non_overlapping_and_dense())
    return empty_strided(like.context(), op, like.sizes(), like.strides(), dtype);
  // infer_dense_strides: no gaps, the dimensions' order kept.
  const auto order = stride_order(like.sizes(), like.strides());
  Shape strides = like.sizes();
  std::int64_t stride = 1;
  for (int i = like.ndim() - 1; i >= 0; --i) {
    const int dim = order[static_cast<unsigned>(i)];
    strides[dim] = stride;
    stride = checked_product(stride, like.size(dim));
  }
  return empty_strided(like.context(), op, like.sizes(), strides, dtype);
}

Tensor empty_like(Op op, const Tensor& like) { return empty_like(op, like, like.dtype()); }

Tensor alias(const Tensor& tensor, const Shape& sizes, const Shape& strides) {
  Tensor result = make(tensor.context(), tensor->storage, sizes, strides, tensor.dtype());
  result->storage_offset = tensor->storage_offset;
  return result;
}

// A non-differentiable view: unlike the others it does not hold its base
// (torch/csrc/autograd/VariableTypeUtils.h, as_view).
Tensor detach(const Tensor& tensor) { return alias(tensor, tensor.sizes(), tensor.strides()); }

void set_data(const Tensor& tensor, const Storage& source) {
  tensor->storage_offset = 0;
  retain(source.get());
  release(std::exchange(tensor->storage, source.get()));
}

void set_data(const Tensor& tensor, const Tensor& source) { set_data(tensor, Storage(source->storage)); }

void replace_data(const Tensor& tensor, const Tensor& data) {
  retain(data->storage);
  release(std::exchange(tensor->storage, data->storage));
  tensor->sizes = data->sizes;
  tensor->strides = data->strides;
  tensor->dtype = data->dtype;
  tensor->storage_offset = data->storage_offset;
}

Tensor on_storage(const Storage& storage, const Shape& sizes, const Shape& strides, DType dtype) {
  return make(*storage->context, storage.get(), sizes, strides, dtype);
}

Workspace::Workspace(Context& context, Op op, std::int64_t bytes)
    : storage_(context.allocate(op, bytes, DType::uint8, {bytes}, Role::workspace)) {}

Workspace::~Workspace() = default;

}  // namespace oometer
