#include "ops/masks.h"

#include "ops/cub.h"
#include "ops/images.h"
#include "ops/vision.h"
#include "tensor/kernel.h"
#include "tensor/node.h"

/// ATen/native/cuda (PyTorch 2.15): ScanKernels.cpp, TriangularOps.cu, TensorCompare.cu; derivatives.yaml.
namespace oometer {

Tensor flip(const Tensor& x) {
  Record record(Op::flip, [](Backward& b) { b.give(0, empty_like(Op::flip, b.grad())); }, {&x});
  return record.output(empty_like(Op::flip, x));
}

Tensor cumsum(const Tensor& x, int dim, DType dtype) {
  // cumsum_backward: grad.flip(dim).cumsum(dim).flip(dim), where there is more than one to sum
  Record record(Op::cumsum,
                [](Backward& b) {
                  const int along = static_cast<int>(b.node.integers[0]);
                  if (b.grad().numel() <= 1 || b.grad().size(along) == 1) return b.give(0, b.grad());
                  const Tensor flipped = flip(b.grad());
                  const Tensor sums = cumsum(flipped, along, b.grad().dtype());
                  b.give(0, to(flip(sums), b.node.dtype));
                },
                {&x});
  if (record) {
    record->integers[0] = dim;
    record->dtype = x.dtype();
  }
  Context& context = x.context();
  Tensor result = empty(context, Op::cumsum, x.sizes(), dtype);
  reads(Op::cumsum, result, {&x});
  Tensor input = x;
  if (x.dtype() != dtype) input = empty_like(Op::cumsum, x, dtype);
  if (!input.is_contiguous()) input = empty(context, Op::cumsum, x.sizes(), dtype);
  // One row: CUB's device-wide scan.
  if (x.ndim() > 0 && x.numel() == x.size(dim))
    const Workspace scan(context, Op::cumsum, cub_scan_bytes(x.numel()) - (element_size(dtype) < 8 ? 256 : 0));
  return record.output(std::move(result));
}

Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b) {
  // where(condition, grad, 0) and where(condition, 0, grad); the zero is a tensor of its own
  Record record(
      Op::where,
      [](Backward& call) {
        for (const unsigned i : {1U, 0U}) {
          if (!call.wants(i)) continue;
          const Tensor zero = empty(call.context, Op::zeros, {}, call.grad().dtype());
          const Tensor grad = pointwise(Op::where, {&call.saved(0), &call.grad(), &zero}, call.grad().dtype());
          call.give(i, sum_to(grad, call.input_sizes(i)));
        }
      },
      {&a, &b});
  record.save(condition);
  return record.output(pointwise(Op::where, {&condition, &a, &b}, a.ndim() == 0 ? b.dtype() : a.dtype()));
}

Tensor triangle(const Tensor& x) {
  Record record(Op::triu,
                [](Backward& b) { b.give(0, empty(b.context, Op::triu, b.grad().sizes(), b.grad().dtype())); }, {&x});
  return record.output(empty(x.context(), Op::triu, x.sizes(), x.dtype()));
}

Tensor abs(const Tensor& x) {
  // grad * self.sgn()
  Record record(Op::abs,
                [](Backward& b) {
                  const Tensor sign = empty_like(Op::abs, b.saved(0));
                  b.give(0, mul(b.grad(), sign));
                },
                {&x});
  record.save(x);
  return record.output(empty_like(Op::abs, x));
}

// PadNd.cpp, constant_pad_nd: nothing to pad is a clone, fewer elements (its backward) the clone of a view.
Tensor pad_to(const Tensor& x, const Shape& sizes) {
  constexpr Op op = Op::constant_pad_nd;
  Record record(op,
                [](Backward& b) {
                  const Shape &own = b.node.sizes, &padded = b.grad().sizes();
                  const Tensor view = own == padded ? b.grad() : make_view(b.grad(), own, b.grad().strides());
                  b.give(0, empty_like(Op::constant_pad_nd, view));
                },
                {&x});
  if (record) record->sizes = x.sizes();
  if (sizes == x.sizes()) return record.output(empty_like(op, x));
  return record.output(in_order_of(x, op, sizes, x.ndim() == 4 && is_channels_last(x)));
}

Tensor pad(const Tensor& x, int dim, std::int64_t more) {
  Shape sizes = x.sizes();
  sizes[dim] += more;
  return pad_to(x, sizes);
}

Tensor masked_fill_in_place(const Tensor& x, const Tensor& mask) {
  Record record(Op::masked_fill, [](Backward& b) { b.give(0, empty_like(Op::masked_fill, b.grad())); }, {&x});
  record.save(mask);
  return in_place(record, Op::masked_fill, x);
}

Tensor copy_in_place(const Tensor& x, const Tensor& source) {
  // CopyBackwards (torch/csrc/autograd/functions/tensor.cpp)
  Record record(Op::copy,
                [](Backward& b) {
                  if (b.wants(0)) b.give(0, empty_like(Op::zeros_like, b.grad()));
                  if (b.wants(1)) b.give(1, sum_to(to(b.grad(), b.input_dtype(1)), b.input_sizes(1)));
                },
                {&x, &source});
  return in_place(record, Op::copy, x, source);
}

Tensor to_contiguous(const Tensor& x, DType dtype) {
  if (x.dtype() == dtype) return contiguous(x);
  Record record(Op::to_copy, [](Backward& b) { b.give(0, to(b.grad(), b.node.dtype)); }, {&x});
  if (record) record->dtype = x.dtype();
  return record.output(empty(x.context(), Op::to_copy, x.sizes(), dtype));
}

namespace {

/// A triangular system's solution, by columns (BatchLinearAlgebra.cpp, linalg_solve_triangular_out). Many matrices are
/// handed to cuBLAS by lists of pointers (cuda/linalg/BatchLinearAlgebra.cpp, triangular_solve_kernel).
Tensor solution(const Tensor& a, const Tensor& b) {
  Context& context = b.context();
  Shape by_columns = b.sizes();
  std::swap(by_columns[-1], by_columns[-2]);
  Shape strides = contiguous_strides(by_columns);
  std::swap(strides[-1], strides[-2]);
  Tensor result = empty_strided(context, Op::solve_triangular, b.sizes(), strides, b.dtype());
  std::int64_t matrices = 1;
  for (int i = 0; i < a.ndim() - 2; ++i) matrices = checked_product(matrices, a.size(i));
  if (matrices <= 8 && a.size(-1) >= 64) {
    const GemmWorkspace workspace(context);
    return result;
  }
  const Tensor of_a = empty(context, Op::arange, {matrices}, DType::int64);
  const Tensor of_b = empty(context, Op::arange, {matrices}, DType::int64);
  const GemmWorkspace workspace(context);
  return result;
}

}  // namespace

Tensor solve_triangular(const Tensor& a, const Tensor& b) {
  Record record(Op::solve_triangular,
                [](Backward& call) {
                  const Tensor& matrix = call.saved(0);
                  const Tensor of_b = solution(transpose(matrix, matrix.ndim() - 2, matrix.ndim() - 1), call.grad());
                  if (call.wants(0)) {
                    const Tensor& x = call.saved(1);
                    const Tensor negative = neg(matmul(of_b, transpose(x, x.ndim() - 2, x.ndim() - 1)));
                    call.give(0, triangle(negative));
                  }
                  if (call.wants(1)) call.give(1, of_b);
                },
                {&a, &b});
  record.save(a);
  Tensor result = solution(a, b);
  record.save_output(result);
  return record.output(std::move(result));
}

}  // namespace oometer
