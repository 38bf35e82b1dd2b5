#include <algorithm>

#include "ops/cub.h"
#include "ops/embedding_bag.h"
#include "ops/ops.h"
#include "rounding.h"
#include "tensor/kernel.h"
#include "tensor/node.h"

/// ATen/native/Embedding.cpp, native/cuda/Embedding.cu and EmbeddingBackwardKernel.cu (2.15).
namespace oometer {

namespace {

constexpr std::int64_t kFewIndices = 3072;   // embedding_dense_backward_cuda: no sorting up to here
constexpr std::int64_t kRowsPerThread = 10;  // NROWS_PER_THREAD

Tensor indices_like(Context& context, std::int64_t count) {
  return empty(context, Op::embedding_dense_backward, {count}, DType::int64);
}

/// Many indices of few rows, whose sums over segments would not fill the device: partial sums are added where they
/// belong, in float32 (seen in torch 2.15 on 108 and 132 multiprocessors, by numbers of indices, rows and columns).
bool adds_partials_in_place(const Device& device, std::int64_t max_partials, std::int64_t rows, std::int64_t columns) {
  constexpr std::int64_t kBlock = 1024, kWarp = 32, kBlocksPerMultiprocessor = 4, kPartialsPerBlock = 4;
  const std::int64_t width = round_up(columns, kWarp),
                     blocks = divide_up(checked_product(rows, width), std::min(width, kBlock));
  return kPartialsPerBlock * blocks < max_partials && blocks < kBlocksPerMultiprocessor * device.sm_count;
}

[[gnu::noinline]] void add_partials(const Tensor& grad_weight, std::int64_t max_partials) {
  Context& context = grad_weight.context();
  const Tensor segment_of_partial = indices_like(context, max_partials);
  if (is_half(grad_weight.dtype()))
    const Tensor sums = empty(context, Op::embedding_dense_backward, grad_weight.sizes(), DType::float32);
}

/// embedding_backward_cuda_kernel: rows of the gradient are summed by segments of the sorted indices, of which there
/// are `count`.
Tensor sum_segments(const Tensor& grad, std::int64_t count, std::int64_t rows, std::int64_t columns, bool of_bags) {
  constexpr Op op = Op::embedding_dense_backward;
  Context& context = grad.context();
  const DType dtype = grad.dtype();
  Tensor grad_weight = empty(context, op, {rows, columns}, dtype);
  reads(op, grad_weight, {&grad});
  const Tensor segment_offsets = indices_like(context, count), segments = indices_like(context, 1);
  {
    const Tensor keys = indices_like(context, count);
    const Workspace unique(context, op, cub_scan_bytes(count));
  }
  const std::int64_t max_segments = std::min(count, rows), max_partials = count / kRowsPerThread + max_segments;
  const Tensor partials = indices_like(context, max_segments), partial_offsets = indices_like(context, max_segments);
  { const Workspace scan(context, op, cub_scan_bytes(max_segments)); }
  const Tensor partial_count = indices_like(context, 1);
  const Tensor partial_segment_offset = indices_like(context, max_partials);
  if (!of_bags && adds_partials_in_place(context.device, max_partials, max_segments, columns))
    add_partials(grad_weight, max_partials);
  else
    const Tensor sums = empty(context, op, {max_partials, columns}, is_half(dtype) ? DType::float32 : dtype);
  return grad_weight;
}

void embedding_backward(Backward& b) {
  const Tensor& indices = b.saved(0);
  Context& context = b.context;
  constexpr Op op = Op::embedding_dense_backward;
  const std::int64_t count = indices.numel(), rows = b.node.sizes[0], columns = b.node.sizes[1];
  const DType dtype = b.grad().dtype();
  const Tensor contiguous_indices = indices.is_contiguous() ? indices : empty_like(Op::clone, indices);
  const Tensor grad = b.grad().is_contiguous() ? b.grad() : empty(context, op, b.grad().sizes(), dtype);
  if (count <= kFewIndices) {
    Tensor grad_weight = empty(context, op, {rows, columns}, dtype);
    reads(op, grad_weight, {&grad});
    b.give(0, std::move(grad_weight));
    return;
  }
  const Tensor sorted = indices_like(context, count), original = indices_like(context, count);
  {
    const Tensor range = indices_like(context, count);
    const Workspace sort(context, op, cub_sort_pairs_bytes(count, rows, context.device.major));
  }
  b.give(0, sum_segments(grad, count, rows, columns, false));
}

// _embedding_bag_dense_backward: embedding_bag_backward_cuda_sum_avg (native/cuda/EmbeddingBag.cu)
void embedding_bag_backward(Backward& b) {
  Context& context = b.context;
  const std::int64_t count = b.saved(0).numel(), rows = b.node.sizes[0], columns = b.node.sizes[1];
  const Tensor sorted = indices_like(context, count), original = indices_like(context, count);
  {
    const Tensor range = indices_like(context, count);
    const Workspace sort(context, Op::embedding_dense_backward,
                         cub_sort_pairs_bytes(count, rows, context.device.major));
  }
  b.give(0, sum_segments(b.grad(), count, rows, columns, true));
}

}  // namespace

Tensor embedding(const Tensor& weight, const Tensor& indices) {
  Record record(Op::embedding, embedding_backward, {&weight});
  if (record) record->sizes = weight.sizes();
  record.save(indices);
  Tensor flat;  // indices.reshape(-1)
  {
    const NoGrad no_grad(weight.context());
    flat = reshape(indices, {indices.numel()});
  }
  Shape sizes = indices.sizes();
  sizes.push_back(weight.size(1));
  return record.output(empty(weight.context(), Op::embedding, sizes, weight.dtype()));
}

Tensor embedding_bag(const Tensor& weight, const Tensor& indices, const Tensor& per_sample_weights) {
  Context& context = weight.context();
  const std::int64_t bags = indices.size(0);
  const auto numbers = [&](Op op, std::int64_t count) { return empty(context, op, {count}, DType::int64); };
  const Tensor offsets = numbers(Op::arange, bags);
  Record record(Op::embedding, embedding_bag_backward, {&weight});
  if (record) record->sizes = weight.sizes();
  const Tensor bag_size = numbers(Op::embedding, bags), offset2bag = numbers(Op::embedding, indices.numel());
  for (const Tensor* saved : {&indices, &offsets, &offset2bag, &bag_size, &per_sample_weights}) record.save(*saved);
  return record.output(empty(context, Op::embedding, {bags, weight.size(1)}, weight.dtype()));
}

}  // namespace oometer
