#include <algorithm>

#include "ops/cub.h"
#include "ops/ops.h"
#include "rounding.h"
#include "tensor/node.h"

/// ATen/native/Embedding.cpp, native/cuda/Embedding.cu and EmbeddingBackwardKernel.cu (2.15).
namespace oometer {

namespace {

constexpr std::int64_t kFewIndices = 3072;   // embedding_dense_backward_cuda: no sorting up to here
constexpr std::int64_t kRowsPerThread = 10;  // NROWS_PER_THREAD

void embedding_backward(Backward& b) {
  const Tensor& indices = b.saved(0);
  Context& context = b.context;
  constexpr Op op = Op::embedding_dense_backward;
  const std::int64_t count = indices.numel(), rows = b.node.sizes[0], columns = b.node.sizes[1];
  const DType dtype = b.grad().dtype();
  const Tensor contiguous_indices = indices.is_contiguous() ? indices : empty_like(Op::clone, indices);
  const Tensor grad = b.grad().is_contiguous() ? b.grad() : empty(context, op, b.grad().sizes(), dtype);
  if (count <= kFewIndices) {
    b.give(0, empty(context, op, {rows, columns}, dtype));
    return;
  }
  const auto indices_like = [&](std::int64_t n) { return empty(context, op, {n}, DType::int64); };
  const Tensor sorted = indices_like(count), original = indices_like(count);
  {
    const Tensor range = indices_like(count);
    // Indices of eight bits are sorted in one pass, which needs no second buffers.
    const Workspace sort(context, op, rows < 256 ? 2559 + 1024 * divide_up(count, 3584) : cub_sort_pairs_bytes(count));
  }
  Tensor grad_weight = empty(context, op, {rows, columns}, dtype);
  const Tensor segment_offsets = indices_like(count), segments = indices_like(1);
  {
    const Tensor keys = indices_like(count);
    const Workspace unique(context, op, cub_scan_bytes(count));
  }
  const std::int64_t max_segments = std::min(count, rows), max_partials = count / kRowsPerThread + max_segments;
  const Tensor partials = indices_like(max_segments), partial_offsets = indices_like(max_segments);
  { const Workspace scan(context, op, cub_scan_bytes(max_segments)); }
  const Tensor partial_count = indices_like(1);
  const Tensor partial_segment_offset = indices_like(max_partials);
  { const Tensor sums = empty(context, op, {max_partials, columns}, is_half(dtype) ? DType::float32 : dtype); }
  b.give(0, std::move(grad_weight));
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

}  // namespace oometer
