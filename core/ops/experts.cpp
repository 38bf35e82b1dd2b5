#include "ops/experts.h"

#include <algorithm>

#include "ops/cub.h"
#include "ops/ops.h"
#include "tensor/kernel.h"
#include "tensor/node.h"

namespace oometer {

namespace {

/// value_selecting_reduction_backward, gather_backward: zeros, into which the gradient is scattered.
void scatter_backward(Backward& b) { b.give(0, empty(b.context, Op::zeros, b.node.sizes, b.grad().dtype())); }

/// The same by scatter_add_, which adds element by element: `n` of its work says how many.
void scatter_add_backward(Backward& b) {
  Tensor result = empty(b.context, Op::zeros, b.node.sizes, b.grad().dtype());
  const std::int64_t added = b.grad().nbytes();
  if (!b.context.stopped)
    b.context.work({.op = static_cast<OpId>(Op::gather),
                    .kind = WorkKind::index,
                    .dtype = result.dtype(),
                    .read = added,
                    .written = result.nbytes()},
                   {.n = b.grad().numel()});
  b.give(0, std::move(result));
}

}  // namespace

TopK topk(const Tensor& x, std::int64_t k) {
  Record record(Op::topk, scatter_backward, {&x});
  if (record) record->sizes = x.sizes();
  Shape sizes = x.sizes();
  sizes[-1] = k;
  TopK result;
  result.values = empty(x.context(), Op::topk, sizes, x.dtype());
  result.indices = empty(x.context(), Op::topk, sizes, DType::int64);
  record.save_output(result.indices);
  result.values = record.output(std::move(result.values));
  return result;
}

TopK max(const Tensor& x) {
  Record record(Op::max, scatter_backward, {&x});
  if (record) record->sizes = x.sizes();
  TopK result;
  result.values = reduce(Op::max, x, {-1}, true, x.dtype());
  result.indices = empty(x.context(), Op::max, result.values.sizes(), DType::int64);
  record.save_output(result.indices);
  result.values = record.output(std::move(result.values));
  return result;
}

Tensor gather(const Tensor& x, const Tensor& indices) {
  Record record(Op::gather, scatter_add_backward, {&x});
  if (record) record->sizes = x.sizes();
  record.save(x);  // for its sizes (derivatives.yaml, gather_backward)
  record.save(indices);
  return record.output(empty(x.context(), Op::gather, indices.sizes(), x.dtype()));
}

Tensor scatter_into(const Tensor& base, const Tensor& indices, const Tensor& source) {
  Record record(Op::copy,
                [](Backward& b) {
                  const Tensor at = b.saved(0);
                  b.give(0, empty(b.context, Op::gather, at.sizes(), b.grad().dtype()));
                },
                {&source});
  record.save(indices);
  kernel(Op::copy, {&source}, base);
  if (!record) return base;
  return record.output(alias(base, base.sizes(), base.strides()));
}

Tensor div_in_place(Tensor x, const Tensor& other) {
  Record record(Op::div, div_backward, {&x, &other});
  record.wants(1) ? record.save(empty_like(Op::clone, x)) : record.skip();
  record.save(other);
  kernel(Op::div, {&x, &other}, x);
  if (!record) return x;
  return record.output(alias(x, x.sizes(), x.strides()));
}

// derivatives.yaml: self: grad, source: grad.index_select(dim, index).expand_as(source)
Tensor index_add_(Tensor x, const Tensor& index, const Tensor& source) {
  Record record(Op::add,
                [](Backward& b) {
                  if (b.wants(0)) b.give(0, b.grad());
                  if (b.wants(1)) b.give(1, empty(b.context, Op::index_select, b.input_sizes(1), b.grad().dtype()));
                },
                {&x, &source});
  record.save(index);
  record.wants(1) ? record.save(source) : record.skip();
  kernel(Op::add, {&x, &source}, x);
  if (!record) return x;
  return record.output(alias(x, x.sizes(), x.strides()));
}

/// sort_stable (ATen/native/cuda/Sort.cpp): up to 4096 values in one block; more by a radix sort of all bits.
TopK sort(const Tensor& x) {
  constexpr std::int64_t kSmall = 4096;  // should_use_small_sort
  Context& context = x.context();
  TopK sorted;
  sorted.values = empty(context, Op::sort, x.sizes(), DType::int64);
  sorted.indices = empty(context, Op::sort, x.sizes(), DType::int64);
  const Tensor range = empty(context, Op::arange, x.sizes(), DType::int64);
  if (x.numel() > kSmall)
    const Workspace scratch(context, Op::sort, cub_radix_sort_bytes(x.numel(), 64, context.device.major));
  return sorted;
}

namespace {

/// What one grouped product takes beside its result.
void grouped_workspace(Context& context, DType dtype, std::int64_t groups, std::int64_t tokens) {
  const int major = context.device.major;
  if (dtype == DType::bfloat16 && (major == 9 || major == 10)) {
    // bf16bf16_grouped_mm (GroupMM.cu): six arrays of pointers, sizes and strides, 60 bytes a group in all; CUTLASS's
    // workspace: four descriptors of 128 bytes a multiprocessor. Found by what 2.15 asks for.
    const Workspace arguments(context, Op::grouped_mm, 60 * groups);
    const Workspace descriptors(context, Op::grouped_mm, 512LL * context.device.sm_count);
  } else if (tokens > 0) {
    const GemmWorkspace workspace(context);  // _grouped_mm_fallback: a product a group that has tokens, all alike
  }
}

/// A product of each token and one of the `weight`'s matrices, or their sum in a weight's gradient. FlopCounterMode
/// does not see it.
void grouped_kernel(const Shape& weight, std::int64_t tokens, std::initializer_list<const Tensor*> read,
                    const Tensor& result) {
  Context& context = result.context();
  if (context.stopped) return;
  const std::int64_t groups = weight[0], n = weight[1], k = weight[2];
  context.work({.op = static_cast<OpId>(Op::grouped_mm),
                .kind = WorkKind::gemm,
                .dtype = result.dtype(),
                .read = touched(read),
                .written = touched(result)},
               {.batch = groups,
                .m = divide_up(tokens, std::max<std::int64_t>(groups, 1)),
                .n = n,
                .k = k,
                .flops = checked_product(checked_product(2 * tokens, n), k)});
}

/// create_grouped_gemm_output_tensor: rows of 16 bytes.
Tensor grouped_output(Context& context, const Shape& sizes, DType dtype) {
  const std::int64_t columns = round_up(sizes[-1], 16 / element_size(dtype));
  Shape padded = sizes;
  padded[-1] = columns;
  const Tensor output = empty(context, Op::grouped_mm, padded, dtype);
  return columns == sizes[-1] ? output : alias(output, sizes, output.strides());
}

void grouped_mm_backward(Backward& b) {
  const Tensor x = b.wants(1) ? b.saved(0) : Tensor();
  const Tensor weight = b.wants(0) ? b.saved(1) : Tensor();
  const std::int64_t tokens = b.grad().size(0);
  const Shape sizes = b.node.sizes;  // the weight's, [groups, n, k]
  if (b.wants(1)) {
    const bool by_rows = b.node.integers[0] != 0;
    Tensor grad_weight =
        grouped_output(b.context, by_rows ? Shape{sizes[0], sizes[2], sizes[1]} : sizes, b.grad().dtype());
    grouped_workspace(b.context, b.grad().dtype(), sizes[0], tokens);
    grouped_kernel(sizes, tokens, {&x, &b.grad()}, grad_weight);
    b.give(1, std::move(grad_weight));
  }
  if (b.wants(0)) {
    Tensor grad_x = grouped_output(b.context, {tokens, sizes[2]}, b.grad().dtype());
    grouped_workspace(b.context, b.grad().dtype(), sizes[0], tokens);
    grouped_kernel(sizes, tokens, {&b.grad(), &weight}, grad_x);
    b.give(0, std::move(grad_x));
  }
}

}  // namespace

namespace {

/// `by_rows`: the weight is [groups, k, n] in memory.
Tensor grouped_product(const Tensor& x, const Tensor& weight, const Tensor& offsets, bool by_rows) {
  Record record(Op::grouped_mm, grouped_mm_backward, {&x, &weight});
  // "mat2", "offs", "self". weight.transpose(-2, -1) holds the memory that the weight has now, whatever ZeRO-3 gives it
  // later.
  if (record.wants(0)) record.save(by_rows ? weight : alias(weight, weight.sizes(), weight.strides()), 1);
  record.save(offsets, 2);
  if (record.wants(1)) record.save(x, 0);
  Shape sizes = weight.sizes();
  if (by_rows) std::swap(sizes[1], sizes[2]);
  if (record) {
    record->sizes = sizes;
    record->integers[0] = by_rows;
  }
  Tensor output = grouped_output(x.context(), {x.size(0), sizes[1]}, x.dtype());
  grouped_workspace(x.context(), x.dtype(), sizes[0], x.size(0));
  grouped_kernel(sizes, x.size(0), {&x, &weight}, output);
  return record.output(std::move(output));
}

}  // namespace

Tensor grouped_mm(const Tensor& x, const Tensor& weight, const Tensor& offsets) {
  return grouped_product(x, weight, offsets, false);
}

Tensor grouped_mm_by_rows(const Tensor& x, const Tensor& weight, const Tensor& offsets) {
  return grouped_product(x, weight, offsets, true);
}

Tensor copy_into(Tensor base, const Tensor& source) {
  Record record(Op::copy,
                [](Backward& b) {
                  Tensor result = empty_strided(b.context, Op::copy, b.grad().sizes(),
                                                contiguous_strides(b.grad().sizes()), b.grad().dtype());
                  Tensor of_base, of_slice = empty(b.context, Op::clone, b.node.sizes, b.grad().dtype());
                  if (b.wants(0)) {
                    of_base = empty_like(Op::zeros_like, of_slice);
                    b.give(0, result);
                  }
                  // CopyBackwards casts, not the engine.
                  if (b.wants(1)) b.give(1, to(of_slice, b.input_dtype(1)));
                  of_slice.reset();
                },
                {&base, &source});
  kernel(Op::copy, {&source}, source);
  if (!record) return base;
  record->sizes = source.sizes();
  return record.output(alias(base, base.sizes(), base.strides()));
}

Tensor mul_complex(const Tensor& x, const Tensor& y) {
  Record record(Op::mul,
                [](Backward& b) {
                  // ViewAsRealBackward0: contiguous; MulBackward0: mul(grad, other.conj()), which is made for it.
                  b.grads[0] = contiguous(b.grads[0]);
                  const Tensor conjugate = empty_like(Op::clone, b.saved(0));
                  b.give(0, mul(b.grads[0], conjugate));
                },
                {&x});
  record.save(y);
  return record.output(pointwise(Op::mul, {&x, &y}, DType::float32));
}

}  // namespace oometer
