#include "ops/accumulate.h"
#include "ops/cub.h"
#include "ops/host_index.h"
#include "ops/list_index.h"
#include "ops/ops.h"
#include "tensor/kernel.h"
#include "tensor/node.h"

/// ATen/native/cuda/IndexKernel.cpp, Nonzero.cu; derivatives.yaml and FunctionsManual.cpp (2.15).
namespace oometer {

namespace {

/// The indices of a mask's True elements, `selected` of them: [selected, dimensions] int64 (Nonzero.cu). They are found
/// anew wherever a mask is used as an index.
Tensor nonzero(Context& context, const Shape& mask_sizes, bool contiguous_mask, std::int64_t selected) {
  const Shape sizes{selected, mask_sizes.ndim()};
  // The stand-in for a kernel that counts: what the recorded cases ran instead.
  if (context.behaviours.dispatch_mode) return empty(context, Op::nonzero, sizes, DType::int64);
  Tensor copy;
  if (!contiguous_mask) copy = empty(context, Op::nonzero, mask_sizes, DType::boolean);
  const std::int64_t count = numel(mask_sizes);
  const Workspace found(context, Op::nonzero, 4);
  {
    const Workspace sum(context, Op::nonzero,
                        count <= kCubReduceOneBlock ? 1 : cub_reduce_bytes(context.device.sm_count));
  }
  Shape strides = sizes;  // each dimension's indices lie together
  for (int i = 0; i < sizes.ndim(); ++i) strides[i] = i == 0 ? 1 : checked_product(i, selected);
  Tensor indices = empty_strided(context, Op::nonzero, sizes, strides, DType::int64);
  const Workspace select(context, Op::nonzero, cub_select_bytes(count, context.device.major));
  return indices;
}

/// A mask that kernels take as it is; another is expanded first.
bool has_layout_of(const Tensor& mask, const Tensor& x) { return mask.sizes() == x.sizes() && mask.is_contiguous(); }

/// grad.masked_select(mask): the mask, expanded to the gradient's shape, becomes a list of indices (an int64 an element
/// and dimension), then the elements are gathered.
Tensor masked_select(const Tensor& grad, const Tensor& mask, std::int64_t selected) {
  const Tensor indices = nonzero(grad.context(), grad.sizes(), has_layout_of(mask, grad), selected);
  return empty(grad.context(), Op::masked_select, {selected}, grad.dtype());
}

/// The dimensions of x that `indexed` leading ones leave, after a first one of `count`.
Shape indexed_sizes(const Shape& x, int indexed, std::int64_t count) {
  Shape sizes{count};
  for (int i = indexed; i < x.ndim(); ++i) sizes.push_back(x[i]);
  return sizes;
}

/// index_put_with_sort_kernel: indices, each below `limit`, and their places are sorted together.
void sort_indices(Context& context, const Shape& rows, std::int64_t limit) {
  const Tensor sorted = empty(context, Op::index_put, rows, DType::int64);
  const Tensor original = empty(context, Op::index_put, rows, DType::int64);
  const Tensor range = empty(context, Op::arange, rows, DType::int64);
  const Workspace sort(context, Op::index_put, cub_sort_pairs_bytes(rows[0], limit - 1, context.device.major));
}

/// index_backward: zeros of the whole input, then index_put_ with accumulation (index_put_with_sort_kernel). `mask`:
/// its sizes where a mask indexed, which becomes `count` indices first; `dimensions` of the input are indexed.
void index_backward(Backward& b, std::int64_t count, const Tensor& mask, int dimensions = 2) {
  Context& context = b.context;
  const auto indices = [&](Op op) { return empty(context, op, {count}, DType::int64); };
  Tensor zeros = empty(context, Op::zeros, b.node.sizes, b.grad().dtype());
  Tensor linear;
  {
    Tensor found;
    if (mask) found = nonzero(context, mask.sizes(), mask.is_contiguous(), count);
    for (int dimension = 0; dimension < dimensions; ++dimension) {
      const Tensor wrapped = indices(Op::index_put);
      const Tensor strided = indices(Op::mul);
      if (!linear) linear = strided;
    }
  }
  std::int64_t limit = 1;
  for (int dimension = 0; dimension < dimensions; ++dimension) limit *= b.node.sizes[dimension];
  const Tensor values = contiguous(b.grad());
  sort_indices(context, {count}, limit);
  accumulate_rows(values, zeros);
  b.give(0, std::move(zeros));
}

}  // namespace

void accumulate_rows(const Tensor& grad, const Tensor& zeros) {
  kernel(Op::index_put, {&grad}, grad.nbytes() < zeros.nbytes() ? grad : zeros);
}

Tensor nonzero(const Tensor& mask, std::int64_t selected) {
  return nonzero(mask.context(), mask.sizes(), mask.is_contiguous(), selected);
}

Tensor masked_scatter(const Tensor& x, const Tensor& mask, const Tensor& source) {
  Record record(Op::masked_scatter,
                [](Backward& b) {
                  if (b.wants(0)) b.give(0, empty_like(Op::masked_fill, b.grad()));
                  if (b.wants(1))
                    b.give(1, view(masked_select(b.grad(), b.saved(0), numel(b.node.sizes)), b.node.sizes));
                },
                {&x, &source});
  record.save(mask);
  if (record) record->sizes = source.sizes();
  Context& context = x.context();
  Tensor result = empty(context, Op::clone, x.sizes(), x.dtype());
  {
    const Tensor prefix_sum = empty(context, Op::masked_scatter, x.sizes(), DType::int64);
    Tensor expanded_mask;
    if (!has_layout_of(mask, x)) expanded_mask = empty(context, Op::masked_scatter, x.sizes(), DType::boolean);
    { const Workspace scan(context, Op::masked_scatter, cub_scan_bytes(x.numel())); }
    Tensor source_contig;
    if (!source.is_contiguous()) source_contig = empty(context, Op::clone, source.sizes(), source.dtype());
  }
  return record.output(std::move(result));
}

Tensor index(const Tensor& x, const Tensor& rows, const Tensor& columns) {
  Record record(Op::index, [](Backward& b) { index_backward(b, b.saved(0).numel(), {}); }, {&x});
  record.save(rows);
  record.save(columns);
  if (record) record->sizes = x.sizes();
  return record.output(empty(x.context(), Op::index, indexed_sizes(x.sizes(), 2, rows.numel()), x.dtype()));
}

Tensor index(const Tensor& x, const Tensor& indices) {
  Record record(Op::index, [](Backward& b) { index_backward(b, b.saved(0).numel(), {}, 1); }, {&x});
  record.save(indices);
  if (record) record->sizes = x.sizes();
  return record.output(empty(x.context(), Op::index, indexed_sizes(x.sizes(), 1, indices.numel()), x.dtype()));
}

Tensor index_put_first_axis(const Tensor& x, const Tensor& indices, std::int64_t rows) {
  Record record(Op::index_put,
                [](Backward& b) { b.give(0, empty(b.context, Op::index, b.node.sizes, b.grad().dtype())); }, {&x});
  record.save(indices);
  if (record) record->sizes = x.sizes();
  return record.output(empty(x.context(), Op::zeros, indexed_sizes(x.sizes(), 1, rows), x.dtype()));
}

// derivatives.yaml: self: grad.index_fill(dim, index, 0), source: grad.index_select(dim, index).expand_as(source)
Tensor index_copy(const Tensor& x, const Tensor& index, const Tensor& source) {
  Record record(Op::index_copy,
                [](Backward& b) {
                  if (b.wants(0)) b.give(0, empty_like(Op::index_put, b.grad()));
                  if (b.wants(1)) b.give(1, empty(b.context, Op::index_select, b.input_sizes(1), b.grad().dtype()));
                },
                {&x, &source});
  record.save(index);
  record.wants(1) ? record.save(source) : record.skip();
  return record.output(empty(x.context(), Op::index_copy, x.sizes(), x.dtype()));
}

Tensor index_from_host(const Tensor& x, std::int64_t count) {
  Record record(Op::index,
                [](Backward& b) {
                  Context& context = b.context;
                  const Shape rows{b.node.integers[0]};
                  Tensor zeros = empty(context, Op::zeros, b.node.sizes, b.grad().dtype());
                  {
                    const Tensor copy = empty(context, Op::to_copy, rows, DType::int64);
                    sort_indices(context, rows, b.node.sizes[0]);
                    accumulate_rows(b.grad(), zeros);
                  }
                  b.give(0, std::move(zeros));
                },
                {&x});
  if (record) {
    record->sizes = x.sizes();
    record->integers[0] = count;
  }
  const Tensor copy = empty(x.context(), Op::to_copy, {count}, DType::int64);
  return record.output(empty(x.context(), Op::index, indexed_sizes(x.sizes(), 1, count), x.dtype()));
}

// What of the indices is computed, on the host, is copied: a number for each row and column, added up on the device
// (IndexingUtils.h, computeLinearIndex).
Tensor index_from_host(const Tensor& x, std::int64_t count, HostRowsAndColumns) {
  Record record(Op::index,
                [](Backward& b) {
                  Context& context = b.context;
                  const Shape rows{b.node.integers[0]};
                  Tensor zeros = empty(context, Op::zeros, b.node.sizes, b.grad().dtype());
                  {
                    const Tensor linear = empty(context, Op::to_copy, rows, DType::int64);
                    { const Tensor columns = empty(context, Op::to_copy, rows, DType::int64); }
                    const Tensor values = contiguous(b.grad());
                    sort_indices(context, rows, checked_product(b.node.sizes[0], b.node.sizes[1]));
                    accumulate_rows(values, zeros);
                  }
                  b.give(0, std::move(zeros));
                },
                {&x});
  if (record) {
    record->sizes = x.sizes();
    record->integers[0] = count;
  }
  const Tensor rows = empty(x.context(), Op::to_copy, {count}, DType::int64),
               columns = empty(x.context(), Op::to_copy, {count}, DType::int64);
  return record.output(empty(x.context(), Op::index, indexed_sizes(x.sizes(), 2, count), x.dtype()));
}

void index_put_from_host(const Tensor& x, const Tensor& values) {
  const Shape count{values.size(0)};
  const Tensor rows = empty(x.context(), Op::to_copy, count, DType::int64);
  const Tensor columns = empty(x.context(), Op::to_copy, count, DType::int64);
  kernel(Op::index_put, {&values}, values);
}

Tensor index_with_list(const Tensor& x, int dim) {
  Record record(Op::index, [](Backward& b) { index_backward(b, b.saved(0).numel(), {}, 1); }, {&x});
  const Tensor indices = empty(x.context(), Op::to_copy, {1}, DType::int64);
  record.save(indices);
  if (record) record->sizes = x.sizes();
  Shape sizes = x.sizes();
  sizes[dim] = 1;
  return record.output(empty(x.context(), Op::index, sizes, x.dtype()));
}

Tensor index_mask(const Tensor& x, const Tensor& mask, std::int64_t selected) {
  Record record(Op::index, [](Backward& b) { index_backward(b, b.node.integers[0], b.saved(0)); }, {&x});
  record.save(mask);
  if (record) {
    record->sizes = x.sizes();
    record->integers[0] = selected;
  }
  const Tensor indices = nonzero(x.context(), mask.sizes(), mask.is_contiguous(), selected);
  return record.output(empty(x.context(), Op::index, indexed_sizes(x.sizes(), mask.ndim(), selected), x.dtype()));
}

namespace {

/// Index tensors are copied for the call where their strides differ (TensorAdvancedIndexing.cpp, AdvancedIndex: "force
/// all index tensors to have the same striding").
struct SameStrides {
  SameStrides(const Tensor& rows, const Tensor& columns) {
    if (rows.strides() == columns.strides()) return;
    row_copy = contiguous(rows);
    column_copy = contiguous(columns);
  }
  Tensor row_copy, column_copy;
};

}  // namespace

Tensor index_put_(Tensor x, const Tensor& rows, const Tensor& columns, const Tensor& values) {
  Record record(Op::index_put,
                [](Backward& b) {
                  if (b.wants(0)) {
                    const Tensor zeros = empty(b.context, Op::zeros, b.node.sizes, b.grad().dtype());
                    Tensor self = empty_like(Op::clone, b.grad());
                    { const SameStrides indices(b.saved(0), b.saved(1)); }
                    b.give(0, std::move(self));
                  }
                  if (b.wants(1)) {
                    const SameStrides indices(b.saved(0), b.saved(1));
                    b.give(1, empty(b.context, Op::index, b.node.sizes, b.grad().dtype()));
                  }
                },
                {&x, &values});
  record.save(rows);
  record.save(columns);
  { const SameStrides indices(rows, columns); }
  kernel(Op::index_put, {&values}, values);
  if (!record) return x;
  record->sizes = values.sizes();
  return record.output(alias(x, x.sizes(), x.strides()));
}

Tensor index_put_mask_(Tensor x, const Tensor& mask, const Tensor& values) {
  Record record(Op::index_put,
                [](Backward& b) {
                  const Tensor& of = b.saved(0);
                  const std::int64_t selected = b.node.sizes[0];
                  if (b.wants(0)) {
                    const Tensor zeros = empty(b.context, Op::zeros, b.node.sizes, b.grad().dtype());
                    Tensor self = empty_like(Op::clone, b.grad());
                    const Tensor indices = nonzero(b.context, of.sizes(), of.is_contiguous(), selected);
                    b.give(0, std::move(self));
                  }
                  if (b.wants(1)) {
                    const Tensor indices = nonzero(b.context, of.sizes(), of.is_contiguous(), selected);
                    b.give(1, empty(b.context, Op::index, b.node.sizes, b.grad().dtype()));
                  }
                },
                {&x, &values});
  record.save(mask);
  { const Tensor indices = nonzero(x.context(), mask.sizes(), mask.is_contiguous(), values.size(0)); }
  kernel(Op::index_put, {&values}, values);
  if (!record) return x;
  record->sizes = values.sizes();
  return record.output(alias(x, x.sizes(), x.strides()));
}

Tensor pad_last(const Tensor& x) {
  Shape sizes = x.sizes();
  ++sizes[-1];
  return empty(x.context(), Op::constant_pad_nd, sizes, x.dtype());
}

}  // namespace oometer
