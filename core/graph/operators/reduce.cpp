// Over some dimensions: reductions, softmax, the loss.
#include <type_traits>

#include "graph/operators/table.h"
#include "ops/experts.h"
#include "ops/masks.h"
#include "ops/ops.h"
#include "ops/vision.h"

namespace oometer {
namespace {

std::vector<int> reduced_dims(GraphCall& c, unsigned i, const Tensor& x) {
  std::vector<int> dims;
  unsigned seen = 0;
  for (const std::int64_t given : c.integers(i)) {
    const int dim = c.checked_dim(given, x.ndim());
    if (seen >> dim & 1U) c.fail("a dimension twice");
    seen |= 1U << static_cast<unsigned>(dim);
    dims.push_back(dim);
  }
  if (dims.empty())
    for (int dim = 0; dim < x.ndim(); ++dim) dims.push_back(dim);
  return dims;
}

void k_mean(GraphCall& c) {
  const Tensor x = c.tensor(0);
  const std::vector<int> dims = reduced_dims(c, 1, x);
  if (c.ok()) c.give(mean(x, dims, c.boolean(2, false)));
}

void k_sum(GraphCall& c) {
  const Tensor x = c.tensor(0);
  const std::vector<int> dims = reduced_dims(c, 1, x);
  if (c.ok()) c.give(sum(x, dims, c.boolean(2, false)));
}

void k_amax(GraphCall& c) {
  const Tensor x = c.tensor(0);
  const std::vector<int> dims = reduced_dims(c, 1, x);
  if (c.ok()) c.give(amax(x, dims, c.boolean(2, false)));
}

/// (self, dim, unbiased or correction, keepdim)
template <class Result>
void give_variance(GraphCall& c, Result (*of)(const Tensor&, const std::vector<int>&, bool)) {
  const Tensor x = c.tensor(0);
  const std::vector<int> dims = reduced_dims(c, 1, x);
  if (!is_floating_point(x.dtype())) c.fail("integers");
  if (!c.ok()) return;
  if constexpr (std::is_same_v<Result, Tensor>)
    c.give(of(x, dims, c.boolean(3, false)));
  else
    c.results = of(x, dims, c.boolean(3, false));
}

void k_var(GraphCall& c) { give_variance(c, var); }

void k_std(GraphCall& c) { give_variance(c, standard_deviation); }

void k_var_mean(GraphCall& c) { give_variance(c, var_mean); }

template <Op op>
void k_extremum(GraphCall& c) {
  if (can_broadcast(c, c.tensor(0), c.tensor(1))) c.give(maximum(op, c.tensor(0), c.tensor(1)));
}

/// max(self, dim, keepdim), max(self, other), and min
template <Op of_two>
void k_max(GraphCall& c) {
  if (c.is_tensor(1)) return k_extremum<of_two>(c);
  const Tensor x = c.tensor(0);
  if (!has_dims(c, x, 1)) return;
  const int dim = c.dim(1, 0, x.ndim());
  if (c.ok()) c.results = max(x, dim, c.boolean(2, false));
}

void k_vector_norm(GraphCall& c) {
  const Tensor x = c.tensor(0);
  const std::vector<int> dims = reduced_dims(c, 2, x);
  if (c.number(1, 2) != 2) return c.fail("a norm other than the Euclidean");
  if (c.ok()) c.give(linalg_vector_norm(x, dims, c.boolean(3, false)));
}

void k_softmax(GraphCall& c) {
  const Tensor x = c.tensor(0);
  c.dim(1, -1, x.ndim());
  if (c.ok()) c.give(softmax(contiguous(x), c.dtype(2).value_or(x.dtype())));
}

void k_log_softmax(GraphCall& c) {
  c.dim(1, -1, c.tensor(0).ndim());
  if (c.ok()) c.give(log_softmax(c.tensor(0)));
}

void k_cross_entropy(GraphCall& c) {
  const Tensor logits = c.tensor(0), target = c.tensor(1);
  if (c.has(2) || c.integer(3, 1) != 1 || c.number(5, 0) != 0 || !has_dims(c, logits, 2, 2) || target.ndim() != 1 ||
      target.size(0) != logits.size(0))
    return c.fail("a loss other than the plain mean over [n, classes]");
  c.give(cross_entropy(logits, target));
}

template <Op op>
void k_all(GraphCall& c) {
  const Tensor x = c.tensor(0);
  const std::vector<int> dims = reduced_dims(c, 1, x);
  if (c.ok()) c.give(all(op, x, dims, c.boolean(2, false)));
}

void k_cumsum(GraphCall& c) {
  const Tensor x = c.tensor(0);
  if (!has_dims(c, x, 1)) return;
  const int dim = c.dim(1, 0, x.ndim());
  if (c.ok()) c.give(cumsum(x, dim, c.dtype(2).value_or(is_floating_point(x.dtype()) ? x.dtype() : DType::int64)));
}

/// (self, n, dim, prepend, append): what is joined, without its first, less what is joined, without its last.
void k_diff(GraphCall& c) {
  Tensor x = c.tensor(0);
  if (!has_dims(c, x, 1)) return;
  const int dim = c.dim(2, -1, x.ndim());
  if (c.integer(1, 1) != 1 || c.has(4) || x.dtype() == DType::boolean) return c.fail("what it is not used with yet");
  if (!c.ok()) return;
  if (c.is_tensor(3)) x = cat({c.tensor(3), x}, dim);
  const std::int64_t length = x.size(dim) - 1;
  if (length < 0) return c.fail("nothing to subtract");
  const Tensor later = slice(x, dim, 1, length), earlier = slice(x, dim, 0, length);
  c.give(sub(later, earlier));
}

/// Of few values in a row: more take several blocks, and memory of their own.
void k_topk(GraphCall& c) {
  const Tensor x = c.tensor(0);
  const std::int64_t k = c.integer(1, 1);
  constexpr std::int64_t kLongest = 1000;
  if (!has_dims(c, x, 1)) return;
  if (c.dim(2, -1, x.ndim()) != x.ndim() - 1 || x.size(-1) > kLongest || k < 1 || k > x.size(-1))
    return c.fail("a row of " + std::to_string(x.size(-1)) + " values or another dimension than the last");
  const TopK found = topk(x, k);
  c.give(found.values);
  c.give(found.indices);
}

void k_sort(GraphCall& c) {
  const Tensor x = c.tensor(0);
  if (x.ndim() != 1 || x.dtype() != DType::int64) return c.fail("a tensor of sizes " + text_of(x.sizes()));
  const TopK sorted = sort(x);
  c.give(sorted.values);
  c.give(sorted.indices);
}

void k_histc(GraphCall& c) {
  const std::int64_t bins = c.integer(1, 100);
  if (c.number(2, 0) == c.number(3, 0) || bins < 1) return c.fail("bounds that it finds itself");
  c.give(empty(c.context, Op::histc, {bins}, c.tensor(0).dtype()));
}

// In alphabetical order.
constexpr AtenOperator kReduce[] = {
    {"_is_all_true", "t!", k_all<Op::all>},
    {"_is_any_true", "t!", k_all<Op::any>},
    {"all", "t!Ib", k_all<Op::all>},
    {"amax", "t!Ib", k_amax},
    {"any", "t!Ib", k_all<Op::any>},
    {"cross_entropy_loss", "tt!oiin", k_cross_entropy},
    {"cumsum", "ti!d", k_cumsum},
    {"diff", "t!iitt", k_diff},
    {"histc", "t!inn", k_histc},
    {"linalg_vector_norm", "tn!Ib_", k_vector_norm},
    {"log_softmax", "ti!d", k_log_softmax},
    {"max", "ta!b", k_max<Op::maximum>},
    {"maximum", "tt!", k_extremum<Op::maximum>},
    {"mean", "t!Ib_", k_mean},
    {"min", "ta!b", k_max<Op::minimum>},
    {"minimum", "tt!", k_extremum<Op::minimum>},
    {"softmax", "ti!d", k_softmax},
    {"sort", "t!ib", k_sort},
    {"std", "t!I_b", k_std},
    {"sum", "t!Ib_", k_sum},
    {"topk", "ti!ibb", k_topk},
    {"var", "t!I_b", k_var},
    {"var_mean", "t!I_b", k_var_mean},
};

}  // namespace

const std::span<const AtenOperator> reduce_operators(kReduce);

}  // namespace oometer
