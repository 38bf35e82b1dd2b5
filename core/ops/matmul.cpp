#include "cuda/cublas.h"
#include "ops/ops.h"
#include "tensor/kernel.h"
#include "tensor/node.h"

namespace oometer {

namespace {

/// cuBLAS takes a matrix whose rows or columns are contiguous; anything else is copied for the call
/// (ATen/native/cuda/Blas.cpp, prepare_matrix_for_cublas and prepare_batch_matrix_for_cublas).
Tensor gemm_operand(Op op, const Tensor& x) {
  const std::int64_t rows = x.size(-2), columns = x.size(-1), row_stride = x.strides()[-2],
                     column_stride = x.strides()[-1];
  const auto leads = [](std::int64_t stride, std::int64_t length) { return stride >= (length > 1 ? length : 1); };
  if ((column_stride == 1 || columns == 1) && leads(row_stride, columns)) return x;
  if ((row_stride == 1 || rows == 1) && leads(column_stride, rows)) return x;
  Tensor copy = empty(x.context(), op, x.sizes(), x.dtype());
  kernel(Op::clone, {&x}, copy);
  return copy;
}

Tensor gemm(Op op, const Tensor& a, const Tensor& b, const Shape& sizes) {
  Context& context = a.context();
  Tensor result = empty(context, op, sizes, a.dtype());
  const Tensor first = gemm_operand(op, a), second = gemm_operand(op, b);
  const GemmWorkspace workspace(context);
  gemm_kernel(op, a, b, result);
  return result;
}

bool is_column_major(const Shape& sizes, const Shape& strides) { return strides[0] == 1 && strides[1] == sizes[0]; }

/// mm_mat1_grad, mm_mat2_grad (FunctionsManual.cpp): the gradient comes in the operand's own memory order.
Tensor mat1_gradient(const Tensor& grad, const Tensor& mat2, const Shape& sizes, const Shape& strides) {
  return is_column_major(sizes, strides) ? transpose(mm(mat2, transpose(grad, 0, 1)), 0, 1)
                                         : mm(grad, transpose(mat2, 0, 1));
}
Tensor mat2_gradient(const Tensor& grad, const Tensor& mat1, const Shape& sizes, const Shape& strides) {
  return is_column_major(sizes, strides) ? transpose(mm(transpose(grad, 0, 1), mat1), 0, 1)
                                         : mm(transpose(mat1, 0, 1), grad);
}

/// The layouts that a mm node remembers of its operands: sizes of [m, k] and [k, n] and whether each is column-major.
void remember_layouts(Record& record, const Tensor& mat1, const Tensor& mat2) {
  if (!record) return;
  record->sizes = {mat1.size(0), mat1.size(1), mat2.size(1)};
  record->integers[0] = is_column_major(mat1.sizes(), mat1.strides());
  record->integers[1] = is_column_major(mat2.sizes(), mat2.strides());
}

Shape strides_of(std::int64_t rows, std::int64_t columns, bool column_major) {
  return column_major ? Shape{1, rows} : Shape{columns, 1};
}

/// Gradients of mat1 and mat2, which are inputs `first` and `first` + 1 of the node and saved in slots 0 and 1.
void give_mat1(Backward& b, unsigned first) {
  const Shape& s = b.node.sizes;
  if (b.wants(first))
    b.give(first, mat1_gradient(b.grad(), b.saved(1), {s[0], s[1]}, strides_of(s[0], s[1], b.node.integers[0] != 0)));
}
void give_mat2(Backward& b, unsigned first) {
  const Shape& s = b.node.sizes;
  if (b.wants(first + 1))
    b.give(first + 1,
           mat2_gradient(b.grad(), b.saved(0), {s[1], s[2]}, strides_of(s[1], s[2], b.node.integers[1] != 0)));
}

Tensor addmm(const Tensor& bias, const Tensor& mat1, const Tensor& mat2) {
  Record record(Op::addmm,
                [](Backward& b) {
                  give_mat1(b, 1);
                  give_mat2(b, 1);
                  if (b.wants(0)) b.give(0, b.grad());
                },
                {&bias, &mat1, &mat2});
  remember_layouts(record, mat1, mat2);
  record.wants(2) ? record.save(mat1) : record.skip();
  record.wants(1) ? record.save(mat2) : record.skip();
  Context& context = mat1.context();
  Tensor result = empty(context, Op::addmm, {mat1.size(0), mat2.size(1)}, mat1.dtype());
  // A 1-D bias rides in cuBLASLt's epilogue, which has a workspace of its own (Blas.cpp, isInputCompliesAddmmCudaLt).
  const bool lt = mat2.size(0) > 1 && mat2.size(1) > 1;
  if (lt && !context.behaviours.cublaslt_workspace_unified) {
    const GemmWorkspace workspace(context, Op::addmm, kCublasLtWorkspace,
                                  context.behaviours.cublaslt_workspace_per_call, context.cublaslt_workspaces);
    // cuBLASLt's handle is the cuBLAS one, which is given its own workspace as soon as it is asked for
    // (CUDAContext.cpp, getCurrentCUDABlasLtHandle; seen on an H100 with 2.11).
    if (!context.behaviours.cublas_workspace_per_call) const GemmWorkspace kept(context);
  } else {
    const GemmWorkspace workspace(context);
  }
  gemm_kernel(Op::addmm, mat1, mat2, result, bias);
  return record.output(std::move(result));
}

/// Whether matmul treats [.., n] x [n, m] as one matrix product (LinearAlgebra.cpp, should_fold).
bool should_fold(const Tensor& a, const Tensor& b) {
  // A view of a weight that trains says so even where grad mode is off.
  if (b.requires_grad() || (b->base && b->base.requires_grad())) return true;
  // Whether all but the last dimension are one in a view. PyTorch 2.15 takes no notice of those of a single element.
  int next = -1;
  for (int i = a.ndim() - 2; i >= 0; --i) {
    if (a.size(i) == 1) continue;
    if (next >= 0 && a.strides()[i] != a.strides()[next] * a.size(next)) return false;
    next = i;
  }
  return true;
}

std::int64_t leading(const Shape& sizes, int kept) {
  std::int64_t product = 1;
  for (int i = 0; i < sizes.ndim() - kept; ++i) product = checked_product(product, sizes[i]);
  return product;
}

Shape with_last(Shape sizes, std::int64_t last) {
  sizes[-1] = last;
  return sizes;
}

}  // namespace

GemmWorkspace::GemmWorkspace(Context& context)
    : GemmWorkspace(context, Op::cublas_workspace,
                    cublas_workspace_bytes(context.behaviours, context.device.major, context.device.minor),
                    context.behaviours.cublas_workspace_per_call, context.cublas_workspaces) {}

GemmWorkspace::GemmWorkspace(Context& context, Op op, std::int64_t bytes, bool per_call,
                             std::vector<Storage>& workspaces) {
  if (per_call) {
    storage_ = context.allocate(op, bytes, DType::uint8, {bytes}, Role::workspace);
    return;
  }
  // One a handle and stream, made by its first GEMM and kept. The backward's thread has a handle of its own.
  const std::size_t slot = 2u * context.stream + (context.in_backward ? 1u : 0u);
  if (workspaces.size() <= slot) workspaces.resize(slot + 1);
  Storage& kept = workspaces[slot];
  if (!kept) kept = context.allocate(op, bytes, DType::uint8, {bytes}, Role::workspace);
}

Tensor mm(const Tensor& a, const Tensor& b) {
  Record record(Op::mm,
                [](Backward& call) {
                  give_mat2(call, 0);
                  give_mat1(call, 0);
                },
                {&a, &b});
  remember_layouts(record, a, b);
  if (record.wants(0)) record.save(b, 1);  // "mat2" before "self"
  if (record.wants(1)) record.save(a, 0);
  return record.output(gemm(Op::mm, a, b, {a.size(0), b.size(1)}));
}

Tensor bmm(const Tensor& a, const Tensor& b) {
  Record record(Op::bmm,
                [](Backward& call) {
                  const Tensor self = call.wants(1) ? call.saved(0) : Tensor(),
                               mat2 = call.wants(0) ? call.saved(1) : Tensor();
                  if (call.wants(1)) call.give(1, bmm(transpose(self, 1, 2), call.grad()));
                  if (call.wants(0)) call.give(0, bmm(call.grad(), transpose(mat2, 1, 2)));
                },
                {&a, &b});
  if (record.wants(0)) record.save(b, 1);  // "mat2" before "self"
  if (record.wants(1)) record.save(a, 0);
  return record.output(gemm(Op::bmm, a, b, {a.size(0), a.size(1), b.size(2)}));
}

Tensor baddbmm(const Tensor& input_in, const Tensor& batch1_in, const Tensor& batch2_in, bool scales) {
  const Tensor batch2 = autocast_lower(batch2_in), batch1 = autocast_lower(batch1_in), input = autocast_lower(input_in);
  // maybe_multiply(grad.bmm(batch2.mT), alpha) and maybe_multiply(batch1.mT.bmm(grad), alpha)
  Record record(Op::baddbmm,
                [](Backward& b) {
                  if (b.wants(1)) {
                    const Tensor product = bmm(b.grad(), transpose(b.saved(1), 1, 2));
                    b.give(1, b.node.integers[0] != 0 ? mul_scalar(product) : product);
                  }
                  if (b.wants(2)) {
                    const Tensor product = bmm(transpose(b.saved(0), 1, 2), b.grad());
                    b.give(2, b.node.integers[0] != 0 ? mul_scalar(product) : product);
                  }
                },
                {&input, &batch1, &batch2});
  if (record) record->integers[0] = scales ? 1 : 0;
  record.wants(2) ? record.save(batch1) : record.skip();
  record.wants(1) ? record.save(batch2) : record.skip();
  Context& context = batch1.context();
  Tensor result = empty(context, Op::baddbmm, {batch1.size(0), batch1.size(1), batch2.size(2)}, batch1.dtype());
  const Tensor first = gemm_operand(Op::baddbmm, batch1), second = gemm_operand(Op::baddbmm, batch2);
  const GemmWorkspace workspace(context);
  gemm_kernel(Op::baddbmm, batch1, batch2, result, input);
  return record.output(std::move(result));
}

Tensor matmul(const Tensor& a_in, const Tensor& b_in) {
  const Tensor b = autocast_lower(b_in), a = autocast_lower(a_in);
  if (a.ndim() == 2 && b.ndim() == 2) return mm(a, b);
  if (b.ndim() == 2 && should_fold(a, b)) {
    const Tensor folded = reshape(a, {leading(a.sizes(), 1), a.size(-1)});
    return unsafe_view(mm(folded, b), with_last(a.sizes(), b.size(1)));
  }
  // b has what a has in front of its matrix, or one of it, or nothing: it is spread over a's. So is a over b's rows.
  if (a.ndim() == b.ndim() && a.size(0) == 1 && b.size(0) != 1) {
    Shape spread = a.sizes();
    spread[0] = b.size(0);
    return matmul(expand(a, spread), b);
  }
  Shape batch = a.sizes();
  batch[-1] = b.size(-1);
  const std::int64_t matrices = leading(a.sizes(), 2);
  const Tensor first = reshape(a, {matrices, a.size(-2), a.size(-1)});
  Shape wide = a.sizes();
  wide[-2] = b.size(-2);
  wide[-1] = b.size(-1);
  const Tensor second = reshape(b.sizes() == wide ? b : expand(b, wide), {matrices, b.size(-2), b.size(-1)});
  return unsafe_view(bmm(first, second), batch);
}

// deepspeed/runtime/zero/linear.py, LinearFunctionForZeroStage3: it holds the weight itself, not a view of what may be
// let go, and its input and bias whether they are needed or not. A Python function: it saves when it is done.
static Tensor linear_for_zero_stage_3(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  const BackwardFunction backward = [](Backward& b) {
    const Tensor grad = b.grad(), input = b.saved(0);
    Tensor grad_input, grad_weight;
    if (b.wants(0)) grad_input = matmul(grad, b.saved(1));
    if (b.wants(1)) {
      const Tensor rows = reshape(grad, {leading(grad.sizes(), 1), grad.size(-1)});
      grad_weight = matmul(transpose(rows, 0, 1), reshape(input, {leading(input.sizes(), 1), input.size(-1)}));
    }
    if (b.wants(2)) {
      std::vector<int> dims;
      for (int i = 0; i + 1 < grad.ndim(); ++i) dims.push_back(i);
      b.give(2, sum(grad, dims, false));
    }
    b.give(0, std::move(grad_input));
    b.give(1, std::move(grad_weight));
  };
  Record record(Op::none, backward, {&x, &weight, &bias});
  Tensor output;
  {
    const NoGrad no_grad(x.context());
    if (bias && x.ndim() == 2) {
      output = addmm(bias, x, transpose(weight, 0, 1));
    } else {
      output = matmul(x, transpose(weight, 0, 1));
      if (bias) add_(output, bias);
    }
  }
  record.save(x);
  record.save(weight);
  if (bias) record.save(bias);
  return record.output(std::move(output));
}

// ATen/native/Linear.cpp, linear.
Tensor linear(const Tensor& x_in, const Tensor& weight_in, const Tensor& bias_in) {
  if (x_in.context().zero_3_linear) return linear_for_zero_stage_3(x_in, weight_in, bias_in);
  const Tensor bias = autocast_lower(bias_in), weight = autocast_lower(weight_in), x = autocast_lower(x_in);
  if (bias && x.ndim() == 2) return addmm(bias, x, transpose(weight, 0, 1));
  if (bias && x.is_contiguous()) {
    const Tensor flat = view(x, {leading(x.sizes(), 1), x.size(-1)});
    return unsafe_view(addmm(bias, flat, transpose(weight, 0, 1)), with_last(x.sizes(), weight.size(0)));
  }
  Tensor output = matmul(x, transpose(weight, 0, 1));
  if (!bias) return output;
  return x.context().behaviours.dispatch_mode ? add(output, bias) : add_bias_(std::move(output), bias);
}

}  // namespace oometer
