// Joining and looking up.
#include <algorithm>

#include "graph/operators/table.h"
#include "ops/experts.h"
#include "ops/ops.h"
#include "ops/vision.h"

namespace oometer {
namespace {

void k_cat(GraphCall& c) {
  std::vector<Tensor> tensors = c.tensors(0);
  // cat_should_skip_tensor (ATen/native/TensorShape.h): tensors of the one size [0]
  tensors.erase(
      std::remove_if(tensors.begin(), tensors.end(), [](const Tensor& x) { return x.ndim() == 1 && x.size(0) == 0; }),
      tensors.end());
  if (tensors.empty() || tensors[0].ndim() == 0) return c.fail("nothing to join");
  const int dim = c.dim(1, 0, tensors[0].ndim());
  for (const Tensor& tensor : tensors) {
    bool fits = tensor.ndim() == tensors[0].ndim();
    for (int i = 0; fits && i < tensor.ndim(); ++i) fits = i == dim || tensor.size(i) == tensors[0].size(i);
    if (!fits) return c.fail("tensors of sizes " + text_of(tensors[0].sizes()) + " and " + text_of(tensor.sizes()));
  }
  if (c.ok()) c.give(cat(tensors, dim));
}

void k_stack(GraphCall& c) {
  const std::vector<Tensor> tensors = c.tensors(0);
  if (tensors.empty() || !has_dims(c, tensors[0], 0, Shape::kMaxDims - 1)) return c.fail("nothing to join");
  for (const Tensor& tensor : tensors)
    if (!(tensor.sizes() == tensors[0].sizes())) return c.fail("tensors of unlike sizes");
  const int dim = c.dim(1, 0, tensors[0].ndim() + 1);
  if (c.ok()) c.give(stack({tensors.begin(), tensors.end()}, dim));
}

void k_index(GraphCall& c) {
  const Tensor x = c.tensor(0);
  const std::vector<Tensor> indices = c.tensors(1);
  int dim = -1;
  for (std::size_t i = 0; i < indices.size(); ++i) {
    if (!indices[i]) continue;
    if (dim >= 0) return c.fail("more than one index tensor");
    dim = static_cast<int>(i);
  }
  if (dim < 0 || dim >= x.ndim() || x.ndim() - 1 + indices[static_cast<std::size_t>(dim)].ndim() > Shape::kMaxDims)
    return c.fail("no index tensor");
  const Tensor& at = indices[static_cast<std::size_t>(dim)];
  if (at.dtype() != DType::int64) return c.fail("an index that is a mask");
  c.give(index(x, dim, at));
}

void k_gather(GraphCall& c) {
  const Tensor x = c.tensor(0), at = c.tensor(2);
  c.dim(1, 0, x.ndim());
  if (at.dtype() != DType::int64 || at.ndim() != x.ndim()) return c.fail("indices of " + text_of(at.sizes()));
  if (c.ok()) c.give(gather(x, at));
}

void k_index_select(GraphCall& c) {
  const Tensor x = c.tensor(0), at = c.tensor(2);
  const int dim = c.dim(1, 0, x.ndim());
  if (x.ndim() < 1 || at.ndim() != 1 || is_floating_point(at.dtype()))
    return c.fail("indices of " + text_of(at.sizes()));
  if (c.ok()) c.give(index_select(x, dim, at));
}

void k_embedding(GraphCall& c) {
  const Tensor weight = c.tensor(0), indices = c.tensor(1);
  if (!has_dims(c, weight, 2, 2) || !has_dims(c, indices, 0, Shape::kMaxDims - 1)) return;
  c.give(embedding(weight, indices));
}

/// In place by one list of indices, which writes; where a gradient goes through, nothing is said yet.
void k_index_put_(GraphCall& c) {
  const Tensor x = c.tensor(0), values = c.tensor(2);
  const std::vector<Tensor> indices = c.tensors(1);
  if (indices.size() != 1 || indices[0].dtype() != DType::int64 || c.boolean(3, false))
    return c.fail("another index than one list of integers");
  if (c.context.grad_mode && (x.requires_grad() || values.requires_grad()))
    return c.fail("a gradient that goes through it");
  c.give(x);
}

/// As many True in the mask as the source has rows.
void k_masked_scatter(GraphCall& c) {
  const Tensor x = c.tensor(0), mask = c.tensor(1), source = c.tensor(2);
  if (mask.dtype() != DType::boolean || !can_broadcast(c, x, mask)) return c.fail("a mask of " + text_of(mask.sizes()));
  c.give(masked_scatter(x, mask, source));
}

// In alphabetical order.
constexpr AtenOperator kIndexing[] = {
    {"cat", "L!i", k_cat},
    {"embedding", "tt!___", k_embedding},
    {"gather", "tit!b", k_gather},
    {"index", "tl!", k_index},
    {"index_put_", "tlt!b", k_index_put_},
    {"index_select", "tit!", k_index_select},
    {"masked_scatter", "ttt!", k_masked_scatter},
    {"stack", "L!i", k_stack},
};

}  // namespace

const std::span<const AtenOperator> indexing_operators(kIndexing);

}  // namespace oometer
