// Views, and copies that repeat.
#include <algorithm>
#include <optional>

#include "graph/operators/table.h"
#include "ops/masks.h"
#include "ops/ops.h"
#include "ops/vision.h"

namespace oometer {
namespace {

/// Sizes with a -1 filled in.
std::optional<Shape> inferred(GraphCall& c, Shape sizes, std::int64_t numel_wanted) {
  int unknown = -1;
  std::int64_t known = 1;
  for (int i = 0; i < sizes.ndim(); ++i) {
    if (sizes[i] == -1 && unknown < 0)
      unknown = i;
    else if (sizes[i] >= 0)
      known = checked_product(known, sizes[i]);
    else
      known = -1;
  }
  if (known > 0 && unknown >= 0 && numel_wanted % known == 0) {
    sizes[unknown] = numel_wanted / known;
    known = numel_wanted;
  }
  if (known == numel_wanted && (unknown < 0 || sizes[unknown] >= 0)) return sizes;
  c.fail("a view as " + text_of(sizes) + " of " + std::to_string(numel_wanted) + " elements");
  return std::nullopt;
}

void view_as_sizes(GraphCall& c, const Tensor& x, const Shape& wanted) {
  if (const auto sizes = inferred(c, wanted, x.numel())) c.give(reshape(x, *sizes));
}

void k_view(GraphCall& c) {
  if (c.dtype(1)) return c.fail("a view as another type");
  view_as_sizes(c, c.tensor(0), c.is_tensor(1) ? c.tensor(1).sizes() : c.integers(1));
}

void k_flatten(GraphCall& c) {
  const Tensor x = c.tensor(0);
  if (x.ndim() == 0) return c.give(reshape(x, {1}));
  const int start = c.dim(1, 0, x.ndim()), end = c.dim(2, -1, x.ndim());
  if (start > end) return c.fail("a range of dimensions that ends before it begins");
  Shape sizes;
  for (int i = 0; i < x.ndim(); ++i) {
    if (i > start && i <= end)
      sizes[-1] = checked_product(sizes[-1], x.size(i));
    else
      sizes.push_back(x.size(i));
  }
  c.give(start == end ? x : reshape(x, sizes));
}

void k_unflatten(GraphCall& c) {
  const Tensor x = c.tensor(0);
  const Shape parts = c.integers(2);
  if (!has_dims(c, x, 1) || x.ndim() - 1 + parts.ndim() > Shape::kMaxDims) return c.fail("more than six dimensions");
  const int dim = c.dim(1, 0, x.ndim());
  Shape sizes;
  for (int i = 0; i < dim; ++i) sizes.push_back(x.size(i));
  if (const auto filled = inferred(c, parts, x.size(dim)))
    for (const std::int64_t size : *filled) sizes.push_back(size);
  for (int i = dim + 1; i < x.ndim(); ++i) sizes.push_back(x.size(i));
  if (c.ok()) c.give(reshape(x, sizes));
}

void k_transpose(GraphCall& c) {
  const Tensor x = c.tensor(0);
  const int a = c.dim(1, 0, x.ndim()), b = c.dim(2, 1, x.ndim());
  if (c.ok()) c.give(transpose(x, a, b));
}

void k_t(GraphCall& c) {
  if (has_dims(c, c.tensor(0), 2, 2)) c.give(transpose(c.tensor(0), 0, 1));
}

void k_permute(GraphCall& c) {
  const Tensor x = c.tensor(0);
  Shape order = c.integers(1);
  unsigned seen = 0;
  for (int i = 0; i < order.ndim(); ++i) {
    order[i] = c.checked_dim(order[i], x.ndim());
    seen |= 1U << static_cast<unsigned>(order[i]);
  }
  if (order.ndim() != x.ndim() || seen + 1 != 1U << static_cast<unsigned>(x.ndim())) return c.fail("no permutation");
  if (c.ok()) c.give(permute(x, order));
}

void k_unsqueeze(GraphCall& c) {
  const Tensor x = c.tensor(0);
  if (!has_dims(c, x, 0, Shape::kMaxDims - 1)) return;
  const int dim = c.dim(1, 0, x.ndim() + 1);
  if (c.ok()) c.give(unsqueeze(x, dim));
}

void k_squeeze(GraphCall& c) {
  const Tensor x = c.tensor(0);
  const Shape dims = c.integers(1);
  Shape sizes;
  for (int i = 0; i < x.ndim(); ++i) {
    bool named = !c.has(1);
    for (const std::int64_t dim : dims) named = named || c.checked_dim(dim, x.ndim()) == i;
    if (!named || x.size(i) != 1) sizes.push_back(x.size(i));
  }
  if (c.ok()) c.give(reshape(x, sizes));
}

void k_expand(GraphCall& c) {
  const Tensor x = c.tensor(0);
  Shape sizes = c.is_tensor(1) ? c.tensor(1).sizes() : c.integers(1);
  if (sizes.ndim() < x.ndim()) return c.fail("fewer dimensions than there are");
  for (int i = 1; i <= x.ndim(); ++i) {
    if (sizes[-i] == -1) sizes[-i] = x.size(-i);
    if (x.size(-i) != 1 && x.size(-i) != sizes[-i])
      return c.fail(text_of(x.sizes()) + " expanded to " + text_of(sizes));
  }
  if (are_sizes(c, sizes)) c.give(expand(x, sizes));
}

void k_select(GraphCall& c) {
  const Tensor x = c.tensor(0);
  const int dim = c.dim(1, 0, x.ndim());
  if (!c.ok()) return;
  const std::int64_t at = c.integer(2, 0);
  if (at < -x.size(dim) || at >= x.size(dim)) return c.fail("index " + std::to_string(at));
  c.give(select(x, dim, at));
}

void give_slice(GraphCall& c, const Tensor& x, int dim, std::int64_t start, std::int64_t end, std::int64_t step) {
  if (!c.ok() || step < 1) return c.fail("a step of " + std::to_string(step));
  const std::int64_t size = x.size(dim);
  const auto bound = [&](std::int64_t at) { return std::clamp<std::int64_t>(at < 0 ? at + size : at, 0, size); };
  start = bound(start);
  end = std::max(bound(end), start);
  if (start == 0 && end == size && step == 1) return c.give(view(x, x.sizes()));  // slice_backward all the same
  Tensor part = slice(x, dim, start, (end - start + step - 1) / step);
  part->strides[dim] *= step;
  c.give(std::move(part));
}

void k_slice(GraphCall& c) {
  const Tensor x = c.tensor(0);
  const int dim = c.dim(1, 0, x.ndim());
  if (c.ok()) give_slice(c, x, dim, c.integer(2, 0), c.integer(3, kSizeLimit), c.integer(4, 1));
}

void k_narrow(GraphCall& c) {
  const Tensor x = c.tensor(0);
  const int dim = c.dim(1, 0, x.ndim());
  const std::int64_t start = c.integer(2, 0), length = c.integer(3, 0);
  if (!c.ok() || start < 0 || length < 0 || length > x.size(dim) - start) return c.fail("a part outside the tensor");
  c.give(slice(x, dim, start, length));
}

void give_parts(GraphCall& c, const Tensor& x, int dim, const std::vector<std::int64_t>& lengths) {
  std::int64_t total = 0;
  for (const std::int64_t length : lengths) {
    if (length < 0) return c.fail("a part of " + std::to_string(length));
    total += length;
  }
  if (!c.ok() || total != x.size(dim)) return c.fail("parts that do not add up to the whole");
  c.results = split(x, lengths, dim);
}

std::vector<std::int64_t> equal_parts(std::int64_t size, std::int64_t each) {
  std::vector<std::int64_t> lengths;
  for (; size > 0 && lengths.size() < 100000; size -= each) lengths.push_back(std::min(size, each));
  return lengths;
}

void k_chunk(GraphCall& c) {
  const Tensor x = c.tensor(0);
  const int dim = c.dim(2, 0, x.ndim());
  const std::int64_t chunks = c.integer(1, 1);
  if (!c.ok() || chunks < 1 || chunks > 100000) return c.fail(std::to_string(chunks) + " parts");
  give_parts(c, x, dim, equal_parts(x.size(dim), std::max<std::int64_t>((x.size(dim) + chunks - 1) / chunks, 1)));
}

void k_split(GraphCall& c) {
  const Tensor x = c.tensor(0);
  const int dim = c.dim(2, 0, x.ndim());
  if (!c.ok()) return;
  if (c.length(1) > 0) {
    const Shape given = c.integers(1);
    return give_parts(c, x, dim, {given.begin(), given.end()});
  }
  const std::int64_t each = c.integer(1, 1);
  if (each < 1) return c.fail("parts of " + std::to_string(each));
  give_parts(c, x, dim, equal_parts(x.size(dim), each));
}

void k_unbind(GraphCall& c) {
  const Tensor x = c.tensor(0);
  const int dim = c.dim(1, 0, x.ndim());
  if (!c.ok() || x.size(dim) > 100000) return c.fail("a tensor of sizes " + text_of(x.sizes()));
  c.results = unbind(x, dim);
}

void k_numpy_T(GraphCall& c) {
  const Tensor x = c.tensor(0);
  Shape order = x.sizes();
  for (int i = 0; i < order.ndim(); ++i) order[i] = order.ndim() - 1 - i;
  c.give(permute(x, order));
}

void k_triangle(GraphCall& c) {
  if (has_dims(c, c.tensor(0), 2)) c.give(triangle(c.tensor(0)));
}

void k_clone(GraphCall& c) {
  const Tensor x = c.tensor(0);
  c.give(c.text(1) == "torch.contiguous_format" && !x.is_contiguous() ? contiguous(x) : clone(x));
}

void k_contiguous(GraphCall& c) { c.give(contiguous(c.tensor(0))); }

void k_alias(GraphCall& c) { c.give(view(c.tensor(0), c.tensor(0).sizes())); }

void k_detach(GraphCall& c) { c.give(detach(c.tensor(0))); }

void k_same(GraphCall& c) { c.give(c.tensor(0)); }

/// Times as many dimensions as there are at least: repeat; tile fills them up with ones.
void k_repeat(GraphCall& c) {
  const Tensor x = c.tensor(0);
  Shape times = c.integers(1);
  while (c.ok() && times.ndim() < x.ndim()) times.insert(0, 1);
  Shape sizes = times;
  for (int i = 1; i <= x.ndim(); ++i) sizes[-i] = checked_product(sizes[-i], x.size(-i));
  if (are_sizes(c, times) && are_sizes(c, sizes)) c.give(repeat(x, times));
}

/// repeat_interleave(self, repeats, dim): unsqueeze, expand, clone, flatten (Repeat.cpp, a number of repeats)
void k_repeat_interleave(GraphCall& c) {
  const Tensor x = c.tensor(0);
  if (c.is_tensor(1) || !c.has(2) || !has_dims(c, x, 1, Shape::kMaxDims - 1)) return c.fail("repeats by a tensor");
  const int dim = c.dim(2, 0, x.ndim());
  const std::int64_t times = c.integer(1, 1);
  Shape wide = x.sizes(), sizes = x.sizes();
  wide.insert(dim + 1, times);
  sizes[dim] = checked_product(sizes[dim], times);
  if (!c.ok() || !are_sizes(c, wide) || !are_sizes(c, sizes)) return;
  const Tensor repeated = expand(unsqueeze(x, dim + 1), wide);
  c.give(reshape(repeated.is_contiguous() ? clone(repeated) : contiguous(repeated), sizes));
}

void k_unfold(GraphCall& c) {
  const Tensor x = c.tensor(0);
  if (!has_dims(c, x, 1, Shape::kMaxDims - 1)) return;
  const int dim = c.dim(1, 0, x.ndim());
  const std::int64_t size = c.integer(2, 1), step = c.integer(3, 1);
  if (!c.ok() || size < 1 || size > x.size(dim) || step < 1) return c.fail("windows that do not fit");
  c.give(unfold(x, dim, size, step));
}

// In alphabetical order.
constexpr AtenOperator kViews[] = {
    {"_unsafe_view", "tI!", k_view},
    {"alias", "t!", k_alias},
    {"chunk", "ti!i", k_chunk},
    {"clone", "t!_", k_clone},
    {"contiguous", "t!_", k_contiguous},
    {"detach", "t!", k_detach},
    {"detach_", "t!", k_detach},
    {"expand", "tI!b", k_expand},
    {"expand_as", "tt!", k_expand},
    {"flatten", "t!ii", k_flatten},
    {"lift_fresh", "t!", k_same},
    {"narrow", "tiii!", k_narrow},
    {"numpy_T", "t!", k_numpy_T},
    {"permute", "tI!", k_permute},
    {"repeat", "tI!", k_repeat},
    {"repeat_interleave", "t_!i_", k_repeat_interleave},
    {"reshape", "tI!", k_view},
    {"reshape_as", "tt!", k_view},
    {"select", "tii!", k_select},
    {"slice", "t!i___", k_slice},
    {"split", "tI!i", k_split},
    {"split_with_sizes", "tI!i", k_split},
    {"squeeze", "t!I", k_squeeze},
    {"swapaxes", "tii!", k_transpose},
    {"t", "t!", k_t},
    {"tile", "tI!", k_repeat},
    {"transpose", "tii!", k_transpose},
    {"tril", "t!i", k_triangle},
    {"triu", "t!i", k_triangle},
    {"unbind", "t!i", k_unbind},
    {"unflatten", "tiI!", k_unflatten},
    {"unfold", "tiii!", k_unfold},
    {"unsqueeze", "ti!", k_unsqueeze},
    {"view", "t!_", k_view},
    {"view_as", "tt!", k_view},
};

}  // namespace

const std::span<const AtenOperator> views_operators(kViews);

}  // namespace oometer
