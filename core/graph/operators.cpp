#include "graph/operators.h"

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "nn/attention.h"
#include "ops/experts.h"
#include "ops/ops.h"
#include "ops/vision.h"

namespace oometer {

// --- a call's arguments ----------------------------------------------------------------------------------------------

using Kind = GraphArgument::Kind;

const GraphArgument* GraphCall::argument(unsigned i) const {
  if (i >= op_.arguments.count) return nullptr;
  const GraphArgument& found = graph_.items[op_.arguments.first + i];
  return found.kind == Kind::none ? nullptr : &found;
}

bool GraphCall::has(unsigned i) const { return argument(i) != nullptr; }

bool GraphCall::is_tensor(unsigned i) const {
  const GraphArgument* found = argument(i);
  return found && found->kind == Kind::tensor;
}

bool GraphCall::is_fractional(unsigned i) const {
  const GraphArgument* found = argument(i);
  return found && found->kind == Kind::number;
}

Tensor GraphCall::tensor(unsigned i) const {
  return is_tensor(i) ? values_[static_cast<std::size_t>(argument(i)->integer.value)] : Tensor();
}

std::vector<Tensor> GraphCall::tensors(unsigned i) const {
  std::vector<Tensor> result;
  const GraphArgument* found = argument(i);
  if (!found) return result;
  for (unsigned k = 0; k < found->length; ++k) {
    const GraphArgument& item = graph_.items[static_cast<std::size_t>(found->integer.value) + k];
    result.push_back(item.kind == Kind::tensor ? values_[static_cast<std::size_t>(item.integer.value)] : Tensor());
  }
  return result;
}

std::int64_t GraphCall::integer(unsigned i, std::int64_t fallback) {
  const GraphArgument* found = argument(i);
  return found ? std::clamp(at(*found), -kSizeLimit, kSizeLimit) : fallback;
}

double GraphCall::number(unsigned i, double fallback) const {
  const GraphArgument* found = argument(i);
  if (!found) return fallback;
  return found->kind == Kind::number ? found->number : static_cast<double>(at(*found));
}

bool GraphCall::boolean(unsigned i, bool fallback) const {
  const GraphArgument* found = argument(i);
  return found ? found->integer.value != 0 : fallback;
}

std::optional<DType> GraphCall::dtype(unsigned i) const {
  const GraphArgument* found = argument(i);
  if (!found || found->kind != Kind::dtype) return std::nullopt;
  return static_cast<DType>(found->integer.value);
}

std::string_view GraphCall::text(unsigned i) const {
  const GraphArgument* found = argument(i);
  return found && found->kind == Kind::text
             ? std::string_view(graph_.texts[static_cast<std::size_t>(found->integer.value)])
             : std::string_view();
}

std::size_t GraphCall::length(unsigned i) const {
  const GraphArgument* found = argument(i);
  return found && found->kind == Kind::list ? found->length : 0;
}

Shape GraphCall::integers(unsigned i) {
  Shape result;
  const GraphArgument* found = argument(i);
  if (!found) return result;
  constexpr std::int64_t kLargest = std::int64_t{1} << 48;
  const auto bounded = [&](const GraphArgument& item) { return std::clamp(at(item), -kLargest, kLargest); };
  if (found->kind == Kind::integer) return {bounded(*found)};
  if (found->length > Shape::kMaxDims) {
    fail("a list of more than six integers");
    return result;
  }
  for (unsigned k = 0; k < found->length; ++k)
    result.push_back(bounded(graph_.items[static_cast<std::size_t>(found->integer.value) + k]));
  return result;
}

double GraphCall::number_in(unsigned i, unsigned k) const {
  const GraphArgument* found = argument(i);
  if (!found || k >= found->length) return 0;
  const GraphArgument& item = graph_.items[static_cast<std::size_t>(found->integer.value) + k];
  return item.kind == Kind::number ? item.number : static_cast<double>(at(item));
}

int GraphCall::checked_dim(std::int64_t dim, int count) {
  if (dim >= -count && dim < count) return static_cast<int>(dim < 0 ? dim + count : dim);
  fail("dimension " + std::to_string(dim) + " of a tensor that has " + std::to_string(count));
  return 0;
}

int GraphCall::dim(unsigned i, std::int64_t fallback, int count) { return checked_dim(integer(i, fallback), count); }

std::optional<DType> parse_dtype(std::string_view name) {
  constexpr std::string_view kNames[] = {"float64", "float32", "float16", "bfloat16",
                                         "int64",   "int32",   "uint8",   "bool"};
  for (unsigned i = 0; i < std::size(kNames); ++i)
    if (kNames[i] == name) return static_cast<DType>(i);
  return std::nullopt;
}

namespace {

// --- checks ----------------------------------------------------------------------------------------------------------

std::string text_of(const Shape& sizes) {
  std::string out = "[";
  for (const std::int64_t size : sizes) out += (out.size() > 1 ? ", " : "") + std::to_string(size);
  return out + "]";
}

/// Sizes that a tensor can have.
bool are_sizes(GraphCall& c, const Shape& sizes) {
  for (const std::int64_t size : sizes) {
    if (size >= 0 && size < kSizeLimit) continue;
    c.fail("sizes of " + text_of(sizes));
    return false;
  }
  return true;
}

bool has_dims(GraphCall& c, const Tensor& x, int least, int most = Shape::kMaxDims) {
  if (x.ndim() >= least && x.ndim() <= most) return true;
  c.fail("a tensor of sizes " + text_of(x.sizes()));
  return false;
}

bool can_broadcast(GraphCall& c, const Tensor& a, const Tensor& b) {
  for (int i = 1; i <= std::min(a.ndim(), b.ndim()); ++i) {
    if (a.size(-i) == b.size(-i) || a.size(-i) == 1 || b.size(-i) == 1) continue;
    c.fail("tensors of sizes " + text_of(a.sizes()) + " and " + text_of(b.sizes()));
    return false;
  }
  return true;
}

/// In place: the result has x's sizes. A leaf that asks for a gradient cannot change.
bool can_change(GraphCall& c, const Tensor& x, const Tensor& other = {}) {
  if (other && (!can_broadcast(c, x, other) || !(broadcast(x.sizes(), other.sizes()) == x.sizes()))) {
    c.fail("a result that does not fit into " + text_of(x.sizes()));
    return false;
  }
  const Tensor& leaf = x->base ? x->base : x;
  if (c.context.grad_mode && leaf.requires_grad() && !leaf->grad_fn)
    c.fail("a leaf that asks for a gradient, in place");
  return c.ok();
}

constexpr unsigned kAbsent = 1000;  ///< an argument that no call has

/// One integer a spatial dimension: a list of that length, one for all, or `fallback`.
Shape spatial(GraphCall& c, unsigned i, int dims, std::int64_t fallback, std::int64_t least) {
  Shape given = c.integers(i), result;
  if (given.ndim() > 1 && given.ndim() != dims) c.fail("a list of " + std::to_string(given.ndim()) + " integers");
  for (int k = 0; k < dims; ++k) {
    const std::int64_t value = given.ndim() == 0   ? fallback
                               : given.ndim() == 1 ? given[0]
                               : c.ok()            ? given[k]
                                                   : fallback;
    if (value < least || value > (1 << 24)) c.fail("the integer " + std::to_string(value));
    result.push_back(value);
  }
  return result;
}

// --- views -----------------------------------------------------------------------------------------------------------

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

void k_contiguous(GraphCall& c) { c.give(contiguous(c.tensor(0))); }
void k_alias(GraphCall& c) { c.give(view(c.tensor(0), c.tensor(0).sizes())); }
void k_detach(GraphCall& c) { c.give(detach(c.tensor(0))); }
void k_same(GraphCall& c) { c.give(c.tensor(0)); }

// --- made of nothing -------------------------------------------------------------------------------------------------

void give_new(GraphCall& c, Op op, const Shape& sizes, DType dtype) {
  if (are_sizes(c, sizes)) c.give(empty(c.context, op, sizes, dtype));
}

/// size, dtype: empty, zeros, ones, rand, randn.
void k_factory(GraphCall& c) { give_new(c, Op::empty, c.integers(0), c.dtype(1).value_or(DType::float32)); }
/// size, value, dtype
void k_full(GraphCall& c) { give_new(c, Op::fill, c.integers(0), c.dtype(2).value_or(DType::float32)); }
/// self, size, dtype
void k_new(GraphCall& c) { give_new(c, Op::empty, c.integers(1), c.dtype(2).value_or(c.tensor(0).dtype())); }
void k_new_full(GraphCall& c) { give_new(c, Op::fill, c.integers(1), c.dtype(3).value_or(c.tensor(0).dtype())); }
void k_like(GraphCall& c) {
  const Tensor x = c.tensor(0);
  c.give(empty_like(Op::zeros_like, x, c.dtype(1).value_or(x.dtype())));
}
void k_arange(GraphCall& c) {
  unsigned numbers = 0;
  while (numbers < 3 && c.has(numbers) && !c.dtype(numbers)) ++numbers;
  const auto whole = [&](unsigned i) {
    const double number = c.number(i, 1);  // what has a fraction is not counted out here
    if (number != std::floor(number) || std::abs(number) > 0x1p40) c.fail("a range of fractions");
    return c.ok() ? static_cast<std::int64_t>(number) : 1;
  };
  const std::int64_t first = numbers > 1 ? whole(0) : 0, last = whole(numbers > 1 ? 1 : 0),
                     step = numbers > 2 ? whole(2) : 1;
  const std::int64_t length = step > 0 ? last - first : first - last, stride = step > 0 ? step : -step;
  if (stride < 1 || length < 0 || length > (std::int64_t{1} << 40)) return c.fail("a range that is empty");
  const bool fractional = c.is_fractional(0) || c.is_fractional(1) || c.is_fractional(2);
  give_new(c, Op::arange, {(length + stride - 1) / stride},
           c.dtype(numbers).value_or(fractional ? DType::float32 : DType::int64));
}

// --- element by element ----------------------------------------------------------------------------------------------

using Binary = Tensor (*)(const Tensor&, const Tensor&);
using Unary = Tensor (*)(const Tensor&);

/// Integers beside a number with a fraction give float32 (c10::promoteTypes with the default type).
bool turns_to_float(GraphCall& c, const Tensor& x) { return c.is_fractional(1) && !is_floating_point(x.dtype()); }

void by_tensor_or_number(GraphCall& c, Binary by_tensor, Unary by_number) {
  const Tensor x = c.tensor(0);
  if (!c.is_tensor(1) && turns_to_float(c, x)) return c.give(empty_like(Op::add, x, DType::float32));
  if (!c.is_tensor(1)) return c.give(by_number(x));
  if (can_broadcast(c, x, c.tensor(1))) c.give(by_tensor(x, c.tensor(1)));
}

void k_add(GraphCall& c) { by_tensor_or_number(c, add, add_scalar); }
void k_sub(GraphCall& c) { by_tensor_or_number(c, sub, add_scalar); }
void k_mul(GraphCall& c) { by_tensor_or_number(c, mul, mul_scalar); }
void k_div(GraphCall& c) { by_tensor_or_number(c, div, div_scalar); }
void k_rsub(GraphCall& c) {
  if (c.is_tensor(1)) return c.fail("a tensor");
  const Tensor x = c.tensor(0);
  c.give(turns_to_float(c, x) ? empty_like(Op::sub, x, DType::float32) : neg(x));
}
void k_add_(GraphCall& c) {
  if (can_change(c, c.tensor(0), c.tensor(1))) c.give(add_in_place(c.tensor(0), c.tensor(1)));
}
void k_mul_(GraphCall& c) {
  if (can_change(c, c.tensor(0), c.tensor(1))) c.give(mul_in_place(c.tensor(0), c.tensor(1)));
}
/// In place by a number only, or on what no gradient goes through.
void k_div_(GraphCall& c) {
  if (!can_change(c, c.tensor(0), c.tensor(1))) return;
  if (c.is_tensor(1) && (c.tensor(0).requires_grad() || c.tensor(1).requires_grad()))
    return c.fail("a division by a tensor, in place, under gradients");
  c.give(mul_in_place(c.tensor(0), {}));
}
void k_change(GraphCall& c) {
  if (c.tensor(0).requires_grad() || (c.is_tensor(1) && c.tensor(1).requires_grad()))
    return c.fail("a change in place of what gradients go through");
  c.give(c.tensor(0));
}
/// Without a gradient: what autograd's formulas for it would take is not modelled.
void k_without_gradient(GraphCall& c) {
  const Tensor x = c.is_tensor(0) ? c.tensor(0) : c.tensor(1);
  if (!x) return c.fail("numbers alone");
  if (x.requires_grad()) return c.fail("a gradient that goes through it");
  Tensor result = empty_like(Op::pow, x);
  // pow.Scalar: the base becomes a tensor for the call
  if (!c.is_tensor(0)) const Workspace base(c.context, Op::fill, c.is_fractional(0) ? 4 : 8);
  c.give(std::move(result));
}
void k_pow(GraphCall& c) {
  if (!c.is_tensor(0)) return k_without_gradient(c);
  if (c.is_tensor(1)) return c.fail("an exponent that is a tensor");
  c.give(pow(c.tensor(0), c.number(1, 2)));
}
void k_compare(GraphCall& c) {
  const Tensor x = c.tensor(0), other = c.is_tensor(1) ? c.tensor(1) : x;
  if (can_broadcast(c, x, other)) c.give(pointwise(Op::eq, {&x, &other}, DType::boolean));
}
template <Op op>
void k_extremum(GraphCall& c) {
  if (can_broadcast(c, c.tensor(0), c.tensor(1))) c.give(maximum(op, c.tensor(0), c.tensor(1)));
}
void k_logical_not(GraphCall& c) { c.give(empty_like(Op::logical_not, c.tensor(0), DType::boolean)); }
void k_addcmul(GraphCall& c) {
  const Tensor x = c.tensor(0), a = c.tensor(1), b = c.tensor(2);
  if (can_broadcast(c, x, a) && can_broadcast(c, x, b) && can_broadcast(c, a, b)) c.give(addcmul(x, a, b));
}
void k_clamp(GraphCall& c) {
  if (c.is_tensor(1) || c.is_tensor(2)) return c.fail("a bound that is a tensor");
  c.give(clamp(c.tensor(0), c.has(1) && c.has(2)));
}
void k_square(GraphCall& c) { c.give(pow(c.tensor(0), 2)); }
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
  if (c.ok() && are_sizes(c, wide) && are_sizes(c, sizes))
    c.give(reshape(contiguous(clone(expand(unsqueeze(x, dim + 1), wide))), sizes));
}
void k_unfold(GraphCall& c) {
  const Tensor x = c.tensor(0);
  if (!has_dims(c, x, 1, Shape::kMaxDims - 1)) return;
  const int dim = c.dim(1, 0, x.ndim());
  const std::int64_t size = c.integer(2, 1), step = c.integer(3, 1);
  if (!c.ok() || size < 1 || size > x.size(dim) || step < 1) return c.fail("windows that do not fit");
  c.give(unfold(x, dim, size, step));
}
void k_eye(GraphCall& c) {
  const std::int64_t n = c.integer(0, 1);
  give_new(c, Op::eye, {n, n}, c.dtype(1).value_or(DType::float32));
}
/// A channel's values all or none: input * noise (Dropout.cpp).
void k_feature_dropout(GraphCall& c) {
  const Tensor x = c.tensor(0);
  if (!has_dims(c, x, 2)) return;
  if (!c.boolean(2, true) || c.number(1, 0.5) == 0) return c.give(x);
  Shape sizes = x.sizes();
  for (int i = 2; i < sizes.ndim(); ++i) sizes[i] = 1;
  c.give(mul(x, empty(c.context, Op::bernoulli, sizes, x.dtype())));
}
void k_masked_fill(GraphCall& c) {
  if (can_broadcast(c, c.tensor(0), c.tensor(1))) c.give(masked_fill(c.tensor(0), c.tensor(1)));
}
void k_to(GraphCall& c) {
  // to.dtype(dtype), to.device(device, dtype), _to_copy(dtype), to.other(tensor), type_as(tensor)
  const Tensor x = c.tensor(0);
  const DType dtype = c.is_tensor(1) ? c.tensor(1).dtype() : c.dtype(1).value_or(c.dtype(2).value_or(x.dtype()));
  c.give(to(x, dtype));
}
void k_float(GraphCall& c) { c.give(to(c.tensor(0), DType::float32)); }
void k_dropout(GraphCall& c) {
  const double p = c.boolean(2, true) ? c.number(1, 0.5) : 0;
  if (!(p >= 0 && p <= 1)) return c.fail("a probability of " + std::to_string(static_cast<std::int64_t>(p)));
  c.give(dropout(c.tensor(0), p));
}
void k_dropout_(GraphCall& c) {
  const double p = c.boolean(2, true) ? c.number(1, 0.5) : 0;
  if (can_change(c, c.tensor(0))) c.give(dropout_in_place(c.tensor(0), p));
}

// --- reductions ------------------------------------------------------------------------------------------------------

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

// --- products --------------------------------------------------------------------------------------------------------

void k_linear(GraphCall& c) {
  const Tensor x = c.tensor(0), weight = c.tensor(1), bias = c.tensor(2);
  if (!has_dims(c, x, 1) || !has_dims(c, weight, 2, 2)) return;
  if (x.size(-1) != weight.size(1) || (bias && (bias.ndim() != 1 || bias.size(0) != weight.size(0))))
    return c.fail("an input of " + text_of(x.sizes()) + " and a weight of " + text_of(weight.sizes()));
  if (x.ndim() > 1) return c.give(linear(x, weight, bias));
  c.fail("an input of one dimension");
}

void k_matmul(GraphCall& c) {
  const Tensor a = c.tensor(0), b = c.tensor(1);
  bool fits = a.ndim() >= 2 && (b.ndim() == 2 || b.ndim() == a.ndim()) && a.size(-1) == b.size(-2);
  for (int i = 3; fits && i <= b.ndim(); ++i) fits = a.size(-i) == b.size(-i);
  if (!fits) return c.fail("factors of " + text_of(a.sizes()) + " and " + text_of(b.sizes()));
  c.give(matmul(a, b));
}

void k_addmm(GraphCall& c) {
  const Tensor bias = c.tensor(0), a = c.tensor(1), b = c.tensor(2);
  if (!has_dims(c, a, 2, 2) || !has_dims(c, b, 2, 2) || bias.ndim() != 1 || a.size(1) != b.size(0) ||
      bias.size(0) != b.size(1))
    return c.fail("factors of " + text_of(a.sizes()) + " and " + text_of(b.sizes()));
  c.give(linear(a, transpose(b, 0, 1), bias));
}

/// Two operands, each letter once in each: one batched product of them (Linear.cpp, einsum and sumproduct_pair), the
/// second one first where the result has all of its own letters before the first one's. One operand, all
/// of whose letters stay: a view of it.
void k_einsum(GraphCall& c) {
  const std::vector<Tensor> operands = c.tensors(1);
  std::string equation;
  for (const char letter : c.text(0))
    if (letter != ' ') equation += letter;
  const std::size_t comma = equation.find(','), arrow = equation.find("->");
  if (operands.size() == 1 && arrow != std::string::npos) {
    const std::string from = equation.substr(0, arrow), to = equation.substr(arrow + 2);
    Shape order;
    unsigned seen = 0;
    for (std::size_t i = 0; i < to.size() && to.size() <= Shape::kMaxDims; ++i) {
      const std::size_t at = from.find(to[i]);
      if (at == std::string::npos) break;
      order.push_back(static_cast<std::int64_t>(at));
      seen |= 1U << at;
    }
    const int dims = operands[0].ndim();
    if (static_cast<int>(from.size()) != dims || order.ndim() != dims || seen + 1 != 1U << static_cast<unsigned>(dims))
      return c.fail("an equation that is no permutation: " + equation.substr(0, 40));
    return c.give(permute(operands[0], order));
  }
  if (operands.size() != 2 || comma == std::string::npos || arrow == std::string::npos || comma > arrow)
    return c.fail("an equation that is no product of two: " + equation.substr(0, 40));
  std::string a = equation.substr(0, comma), b = equation.substr(comma + 1, arrow - comma - 1);
  const std::string out = equation.substr(arrow + 2);
  Tensor x = operands[0], y = operands[1];
  const auto once_each = [](const std::string& letters) {
    for (std::size_t i = 0; i < letters.size(); ++i)
      if (letters.find(letters[i]) != i || letters[i] < 'A') return false;
    return letters.size() <= Shape::kMaxDims;
  };
  if (!once_each(a) || !once_each(b) || !once_each(out) || x.ndim() != static_cast<int>(a.size()) ||
      y.ndim() != static_cast<int>(b.size()))
    return c.fail("an equation that is no batched product: " + equation.substr(0, 40));
  // Letters of both and the result, of one and the result, of both alone; in the result's order.
  std::string both, left, right, summed;
  const auto is_in = [](const std::string& letters, char letter) { return letters.find(letter) != std::string::npos; };
  for (const char letter : out) (is_in(a, letter) ? is_in(b, letter) ? both : left : right) += letter;
  for (const char letter : a)
    if (!is_in(out, letter)) summed += letter;
  bool fits = true;
  for (const char letter : b) {
    fits = fits && (is_in(a, letter) || is_in(out, letter));
    if (is_in(a, letter))
      fits = fits && x.size(static_cast<int>(a.find(letter))) == y.size(static_cast<int>(b.find(letter)));
  }
  for (const char letter : summed + right) fits = fits && is_in(b, letter);
  if (!fits || summed.empty())
    return c.fail("an equation that is no batched product of " + text_of(x.sizes()) + " and " + text_of(y.sizes()) +
                  ": " + equation.substr(0, 40));
  std::sort(summed.begin(), summed.end());
  if (!left.empty() && !right.empty() && out.find(right.back()) < out.find(left.front())) {
    std::swap(a, b);
    std::swap(x, y);
    std::swap(left, right);
  }
  const auto order_of = [](const std::string& letters, const std::string& wanted) {
    Shape order;
    for (const char letter : wanted) order.push_back(static_cast<std::int64_t>(letters.find(letter)));
    return order;
  };
  const auto product_of = [](const Tensor& tensor, const std::string& letters, const std::string& wanted) {
    std::int64_t product = 1;
    for (const char letter : wanted)
      product = checked_product(product, tensor.size(static_cast<int>(letters.find(letter))));
    return product;
  };
  const std::int64_t batch = product_of(x, a, both), inner = product_of(x, a, summed);
  const Tensor first = reshape(permute(x, order_of(a, both + left + summed)), {batch, product_of(x, a, left), inner});
  const Tensor second =
      reshape(permute(y, order_of(b, both + summed + right)), {batch, inner, product_of(y, b, right)});
  Shape sizes;
  for (const char letter : both + left) sizes.push_back(x.size(static_cast<int>(a.find(letter))));
  for (const char letter : right) sizes.push_back(y.size(static_cast<int>(b.find(letter))));
  c.give(permute(reshape(bmm(first, second), sizes), order_of(both + left + right, out)));
}

void k_convolution(GraphCall& c, int dims, bool transposed) {
  const Tensor x = c.tensor(0), weight = c.tensor(1), bias = c.tensor(2);
  if (!has_dims(c, x, dims + 2, dims + 2) || !has_dims(c, weight, dims + 2, dims + 2)) return;
  ConvolutionOptions o;
  o.transposed = transposed;
  o.stride = spatial(c, 3, dims, 1, 1);
  if (const std::string_view padding = c.text(4); !padding.empty()) {
    // conv2d.padding: "valid" is none, "same" is half of what the kernel reaches over.
    o.dilation = spatial(c, 5, dims, 1, 1);
    for (int i = 0; i < dims; ++i) {
      const std::int64_t reach = checked_product(o.dilation[i], weight.size(i + 2) - 1);
      if (padding == "same" && reach % 2 != 0) return c.fail("padding \"same\" with a kernel of even size");
      o.padding.push_back(padding == "same" ? reach / 2 : 0);
    }
  } else {
    o.padding = spatial(c, 4, dims, 0, 0);
  }
  o.groups = c.integer(6, 1);
  o.output_padding = spatial(c, transposed ? 5 : kAbsent, dims, 0, 0);
  o.dilation = spatial(c, transposed ? 7 : 5, dims, 1, 1);
  if (!c.ok()) return;
  const std::int64_t in = transposed ? weight.size(0) : checked_product(weight.size(1), o.groups);
  if (o.groups < 1 || x.size(1) != in || weight.size(0) % o.groups != 0 || x.size(1) % o.groups != 0 ||
      (o.groups > 65536 && !c.context.behaviours.cudnn))
    return c.fail("an input of " + text_of(x.sizes()) + ", a weight of " + text_of(weight.sizes()) + " and " +
                  std::to_string(o.groups) + " groups");
  const Shape sizes = convolution_sizes(x.sizes(), weight.sizes(), o);
  for (int i = 2; i < sizes.ndim(); ++i)
    if (sizes[i] < 1) return c.fail("a kernel that is larger than its input of " + text_of(x.sizes()));
  if (bias && (bias.ndim() != 1 || bias.size(0) != sizes[1])) return c.fail("a bias of " + text_of(bias.sizes()));
  if (!c.context.behaviours.cudnn && x.size(0) > 65536) return c.fail("more than 65,536 samples without cuDNN");
  c.give(convolution(x, weight, bias, o));
}
void k_conv1d(GraphCall& c) { k_convolution(c, 1, false); }
void k_conv2d(GraphCall& c) { k_convolution(c, 2, false); }
void k_conv3d(GraphCall& c) { k_convolution(c, 3, false); }
void k_conv_transpose1d(GraphCall& c) { k_convolution(c, 1, true); }
void k_conv_transpose2d(GraphCall& c) { k_convolution(c, 2, true); }

// --- normalisation ---------------------------------------------------------------------------------------------------

bool is_per_channel(GraphCall& c, const Tensor& x, std::int64_t channels) {
  if (!x || (x.ndim() == 1 && x.size(0) == channels)) return true;
  c.fail("a weight of " + text_of(x.sizes()) + " for " + std::to_string(channels) + " channels");
  return false;
}

void k_batch_norm(GraphCall& c) {
  const Tensor x = c.tensor(0), weight = c.tensor(1), bias = c.tensor(2);
  if (!has_dims(c, x, 2)) return;
  if (is_per_channel(c, weight, x.size(1)) && is_per_channel(c, bias, x.size(1)))
    c.give(batch_norm(x, weight, bias, c.boolean(5, true)));
}

void k_layer_norm(GraphCall& c) {
  const Tensor x = c.tensor(0), weight = c.tensor(2), bias = c.tensor(3);
  const Shape normalized = c.integers(1);
  bool fits = normalized.ndim() >= 1 && normalized.ndim() <= x.ndim();
  for (int i = 1; fits && i <= normalized.ndim(); ++i) fits = x.size(-i) == normalized[-i];
  if (!fits || (weight && !(weight.sizes() == normalized)) || (bias && !(bias.sizes() == normalized)))
    return c.fail("an input of " + text_of(x.sizes()) + " normalised over " + text_of(normalized));
  c.give(layer_norm(x, weight, bias, normalized.ndim()));
}

void k_rms_norm(GraphCall& c) {
  const Tensor x = c.tensor(0), weight = c.tensor(2);
  const Shape normalized = c.integers(1);
  bool fits = normalized.ndim() >= 1 && normalized.ndim() <= x.ndim() && (!weight || weight.sizes() == normalized);
  for (int i = 1; fits && i <= normalized.ndim(); ++i) fits = x.size(-i) == normalized[-i];
  if (!fits) return c.fail("an input of " + text_of(x.sizes()) + " normalised over " + text_of(normalized));
  if (weight && weight.dtype() != x.dtype()) return c.fail("a weight of another type");
  if (!c.context.behaviours.fused_rms_norm && x.dtype() != DType::float32)
    return c.fail("half precision under a torch before 2.9, whose versions differ there");
  c.give(rms_norm(x, weight, normalized.ndim()));
}

void k_group_norm(GraphCall& c) {
  const Tensor x = c.tensor(0), weight = c.tensor(2), bias = c.tensor(3);
  const std::int64_t groups = c.integer(1, 1);
  if (!has_dims(c, x, 2)) return;
  if (groups < 1 || x.size(1) % groups != 0) return c.fail(std::to_string(groups) + " groups");
  if (is_per_channel(c, weight, x.size(1)) && is_per_channel(c, bias, x.size(1)))
    c.give(group_norm(x, groups, weight, bias));
}

// --- pooling, padding, resizing --------------------------------------------------------------------------------------

/// Sizes after a window of `kernel` went over the last dimensions (pooling_output_shape).
Shape pooled(GraphCall& c, const Tensor& x, int dims, bool has_dilation, unsigned ceil_at) {
  Shape sizes = x.sizes();
  const Shape kernel = spatial(c, 1, dims, 1, 1), padding = spatial(c, 3, dims, 0, 0);
  Shape stride = spatial(c, c.length(2) > 0 || (c.has(2) && c.integers(2).ndim() == 1) ? 2 : 1, dims, 1, 1);
  const Shape dilation = has_dilation ? spatial(c, 4, dims, 1, 1) : spatial(c, kAbsent, dims, 1, 1);
  const bool ceil = c.boolean(ceil_at, false);
  if (!c.ok()) return sizes;
  for (int i = 0; i < dims; ++i) {
    const int at = x.ndim() - dims + i;
    const std::int64_t room = x.size(at) + 2 * padding[i] - dilation[i] * (kernel[i] - 1) - 1;
    if (room < 0) c.fail("a window that is larger than its input of " + text_of(x.sizes()));
    std::int64_t size = (room + (ceil ? stride[i] - 1 : 0)) / stride[i] + 1;
    if (ceil && (size - 1) * stride[i] >= x.size(at) + padding[i]) --size;
    sizes[at] = size;
  }
  return sizes;
}

void k_max_pool2d(GraphCall& c) {
  const Tensor x = c.tensor(0);
  if (!has_dims(c, x, 3, 4)) return;
  const Shape sizes = pooled(c, x, 2, true, 5);
  if (c.ok()) c.give(max_pool(x, sizes));
}

void k_avg_pool2d(GraphCall& c) {
  const Tensor x = c.tensor(0);
  if (!has_dims(c, x, 3, 4)) return;
  const Shape sizes = pooled(c, x, 2, false, 4);
  if (c.ok()) c.give(avg_pool(x, sizes));
}

/// avg_pool2d of one row (Pooling.cpp)
void k_avg_pool1d(GraphCall& c) {
  const Tensor x = c.tensor(0);
  if (!has_dims(c, x, 2, 3)) return;
  Shape sizes = pooled(c, x, 1, false, 4);
  if (!c.ok()) return;
  Shape images = sizes;
  images.insert(x.ndim() - 1, 1);
  c.give(reshape(avg_pool(unsqueeze(x, x.ndim() - 1), images), sizes));
}

/// Windows of a kernel over an image: [n, channels x kernel, places] (im2col_shape_check); `at`: where kernel,
/// dilation, padding and stride begin among the arguments. No places after an error.
struct Windows {
  std::int64_t kernel = 1, places = 0;
};
Windows windows_over(GraphCall& c, unsigned at, std::int64_t height, std::int64_t width) {
  const Shape kernel = spatial(c, at, 2, 1, 1), dilation = spatial(c, at + 1, 2, 1, 1),
              padding = spatial(c, at + 2, 2, 0, 0), stride = spatial(c, at + 3, 2, 1, 1);
  if (!c.ok()) return {};
  Windows windows{kernel[0] * kernel[1], 1};
  for (int i = 0; i < 2; ++i) {
    const std::int64_t room = (i == 0 ? height : width) + 2 * padding[i] - dilation[i] * (kernel[i] - 1) - 1;
    if (room < 0) c.fail("a window that is larger than its input");
    windows.places = checked_product(windows.places, room / stride[i] + 1);
  }
  return windows;
}

void k_im2col(GraphCall& c) {
  const Tensor x = c.tensor(0);
  if (!has_dims(c, x, 4, 4)) return;
  const Windows windows = windows_over(c, 1, x.size(2), x.size(3));
  if (c.ok()) c.give(im2col(x, {x.size(0), checked_product(x.size(1), windows.kernel), windows.places}));
}

void k_col2im(GraphCall& c) {
  const Tensor x = c.tensor(0);
  if (!has_dims(c, x, 3, 3)) return;
  const Shape size = spatial(c, 1, 2, 1, 1);
  const Windows windows = windows_over(c, 2, size[0], size[1]);
  if (!c.ok() || x.size(1) % windows.kernel != 0 || x.size(2) != windows.places)
    return c.fail("windows of " + text_of(x.sizes()) + " for an image of " + text_of(size));
  c.give(col2im(x, {x.size(0), x.size(1) / windows.kernel, size[0], size[1]}));
}

Shape adapted(GraphCall& c, const Tensor& x) {
  Shape sizes = x.sizes();
  const Shape wanted = spatial(c, 1, 2, 1, 0);
  for (int i = 0; i < 2; ++i) sizes[x.ndim() - 2 + i] = wanted[i];
  return sizes;
}

void k_adaptive_avg_pool2d(GraphCall& c) {
  const Tensor x = c.tensor(0);
  if (!has_dims(c, x, 3, 4)) return;
  const Shape sizes = adapted(c, x);
  if (!c.ok()) return;
  // adaptive_avg_pool2d, AdaptiveAveragePooling.cpp
  if (sizes[-1] == 1 && sizes[-2] == 1) return c.give(mean_of_images(x));
  c.give(pool(Op::adaptive_avg_pool2d, Op::adaptive_avg_pool2d_backward, x, sizes, true));
}

void k_adaptive_max_pool2d(GraphCall& c) {
  const Tensor x = c.tensor(0);
  if (!has_dims(c, x, 3, 4)) return;
  const Shape sizes = adapted(c, x);
  if (c.ok()) c.give(max_pool(x, sizes));
}

void k_pad(GraphCall& c) {
  const Tensor x = c.tensor(0);
  const Shape by = c.integers(1);
  if (by.ndim() % 2 != 0 || by.ndim() / 2 > x.ndim()) return c.fail("a padding of " + text_of(by));
  const std::string_view mode = c.text(2);
  if (mode == "circular") return c.fail("padding that is circular");
  Shape sizes = x.sizes();
  for (int i = 0; i < by.ndim() / 2; ++i) sizes[-1 - i] += by[2 * i] + by[2 * i + 1];
  // reflection_pad and replication_pad keep their input
  const bool keeps_input = !mode.empty() && mode != "constant";
  if (are_sizes(c, sizes)) c.give(pool(Op::constant_pad_nd, Op::constant_pad_nd, x, sizes, keeps_input));
}

void k_upsample(GraphCall& c) {
  // (self, output_size, align_corners or scale_factors, ...): where sizes are None, factors follow in a list
  const Tensor x = c.tensor(0);
  const int dims = x.ndim() - 2;
  if (!has_dims(c, x, 3, 5)) return;
  Shape sizes = x.sizes();
  if (c.has(1)) {
    const Shape wanted = spatial(c, 1, dims, 1, 1);
    for (int i = 0; i < dims; ++i) sizes[2 + i] = wanted[i];
  } else {
    const unsigned factors = c.length(2) > 0 ? 2 : 3;
    for (int i = 0; i < dims; ++i)
      sizes[2 + i] = static_cast<std::int64_t>(
          std::clamp(static_cast<double>(x.size(2 + i)) * c.number_in(factors, static_cast<unsigned>(i)), 0.0, 0x1p40));
  }
  if (c.ok()) c.give(pool(Op::upsample, Op::upsample_backward, x, sizes, false));
}

void k_roll(GraphCall& c) {
  Tensor x = c.tensor(0);
  const std::size_t times = std::max<std::size_t>(c.length(1), 1);
  if (times > Shape::kMaxDims) return c.fail("a roll in more than six dimensions");
  for (std::size_t i = 0; i < times; ++i) x = pool(Op::roll, Op::roll, x, x.sizes(), false);
  c.give(std::move(x));
}

void k_flip(GraphCall& c) { c.give(pool(Op::flip, Op::flip, c.tensor(0), c.tensor(0).sizes(), false)); }

// --- joining, looking up ---------------------------------------------------------------------------------------------

void k_cat(GraphCall& c) {
  const std::vector<Tensor> tensors = c.tensors(0);
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

/// zeros, into which scatter_ writes (Onehot.cpp); without a number of classes the largest index is read.
void k_one_hot(GraphCall& c) {
  Shape sizes = c.tensor(0).sizes();
  if (c.integer(1, -1) < 1 || sizes.ndim() == Shape::kMaxDims) return c.fail("a number of classes that is not said");
  sizes.push_back(c.integer(1, -1));
  give_new(c, Op::one_hot, sizes, c.tensor(0).dtype());
}

void k_embedding(GraphCall& c) {
  const Tensor weight = c.tensor(0), indices = c.tensor(1);
  if (!has_dims(c, weight, 2, 2) || !has_dims(c, indices, 0, Shape::kMaxDims - 1)) return;
  c.give(embedding(weight, indices));
}

/// Kernels want four dimensions (sdp_utils_cpp.h, check_tensor_shapes); math takes any: there, two are as good as one.
void five_dims(GraphCall& c, const Tensor& query, const Tensor& key, const Tensor& value) {
  bool fits = key.ndim() == 5 && key.sizes() == value.sizes() && query.size(4) == key.size(4) && !c.tensor(3);
  for (int i = 0; fits && i < 3; ++i) fits = query.size(i) == key.size(i);
  if (!fits) return c.fail("queries of " + text_of(query.sizes()) + ", keys of " + text_of(key.sizes()));
  const auto merged = [](const Tensor& x) {
    return reshape(x, {x.size(0), checked_product(x.size(1), x.size(2)), x.size(3), x.size(4)});
  };
  c.give(reshape(scaled_dot_product_attention(AttentionKernel::math, merged(query), merged(key), merged(value), {},
                                              {c.boolean(5, false), false, c.number(4, 0)}),
                 {query.size(0), query.size(1), query.size(2), query.size(3), value.size(4)}));
}

void k_attention(GraphCall& c) {
  const Tensor query = c.tensor(0), key = c.tensor(1), value = c.tensor(2), mask = c.tensor(3);
  for (const Tensor& x : {query, key, value})
    if (!has_dims(c, x, 4, 5)) return;
  if (query.ndim() == 5) return five_dims(c, query, key, value);
  if (key.size(1) < 1 || query.size(1) % key.size(1) != 0 || query.size(3) != key.size(3) || query.size(3) < 1 ||
      !(key.sizes() == value.sizes()) || query.size(0) != key.size(0))
    return c.fail("queries of " + text_of(query.sizes()) + ", keys of " + text_of(key.sizes()));
  const AttentionCall call{c.attention, c.boolean(5, false), c.number(4, 0), true};
  c.give(scaled_dot_product_attention(choose_kernel(call, query, key, value, mask), query, key, value, mask,
                                      {call.causal, query.size(1) != key.size(1), call.dropout}));
}

void k_cross_entropy(GraphCall& c) {
  const Tensor logits = c.tensor(0), target = c.tensor(1);
  if (c.has(2) || c.integer(3, 1) != 1 || c.number(5, 0) != 0 || !has_dims(c, logits, 2, 2) || target.ndim() != 1 ||
      target.size(0) != logits.size(0))
    return c.fail("a loss other than the plain mean over [n, classes]");
  c.give(cross_entropy(logits, target));
}

// --- the table -------------------------------------------------------------------------------------------------------

using Kernel = void (*)(GraphCall&);

/// What an operator is: a kernel; or a function of one tensor; or an activation, of its input or its result.
struct Entry {
  const char* name;
  const char* signature;
  Kernel kernel = nullptr;
  Unary unary = nullptr;
  Op forward = Op::none, backward = Op::none;
  bool of_result = false, is_in_place = false;
};

constexpr Entry of_input(const char* name, Op forward, Op backward, bool is_in_place = false) {
  return {name, "t!____", nullptr, nullptr, forward, backward, false, is_in_place};
}
constexpr Entry of_result(const char* name, Op forward, Op backward, bool is_in_place = false) {
  return {name, "t!____", nullptr, nullptr, forward, backward, true, is_in_place};
}
constexpr Entry of_one(const char* name, Unary unary) { return {name, "t!", nullptr, unary}; }

// In alphabetical order.
constexpr Entry kOperators[] = {
    {"_to_copy", "t!d", k_to},
    {"_unsafe_view", "tI!", k_view},
    {"_upsample_bicubic2d_aa", "t!____", k_upsample},
    {"_upsample_bilinear2d_aa", "t!____", k_upsample},
    {"adaptive_avg_pool2d", "tI!", k_adaptive_avg_pool2d},
    {"adaptive_max_pool2d", "tI!", k_adaptive_max_pool2d},
    {"add", "ta!n", k_add},
    {"add_", "ta!n", k_add_},
    {"addcmul", "ttt!n", k_addcmul},
    {"addmm", "ttt!", k_addmm},
    {"alias", "t!", k_alias},
    {"amax", "t!Ib", k_amax},
    {"arange", "n!______", k_arange},
    {"avg_pool1d", "tI!IIbb", k_avg_pool1d},
    {"avg_pool2d", "tI!IIbb_", k_avg_pool2d},
    {"batch_norm", "toooob!nnb", k_batch_norm},
    {"bernoulli", "t!_", k_like},
    {"bernoulli_", "t!__", k_change},
    {"bmm", "tt!", k_matmul},
    {"cat", "L!i", k_cat},
    {"chunk", "ti!i", k_chunk},
    {"clamp", "t!__", k_clamp},
    {"clamp_max", "t!_", k_clamp},
    {"clamp_min", "t!_", k_clamp},
    {"clone", "t!_", nullptr, clone},
    {"col2im", "tIIIII!", k_col2im},
    {"constant", "Id!", k_factory},
    {"contiguous", "t!_", k_contiguous},
    {"conv1d", "tt!oI_Ii", k_conv1d},
    {"conv2d", "tt!oI_Ii", k_conv2d},
    {"conv3d", "tt!oI_Ii", k_conv3d},
    {"conv_transpose1d", "tt!oIIIiI", k_conv_transpose1d},
    {"conv_transpose2d", "tt!oIIIiI", k_conv_transpose2d},
    {"copy_", "tt!_", k_change},
    {"cos", "t!", k_without_gradient},
    {"cross_entropy_loss", "tt!oiin", k_cross_entropy},
    {"detach", "t!", k_detach},
    {"detach_", "t!", k_detach},
    {"div", "ta!_", k_div},
    {"div_", "ta!_", k_div_},
    {"dropout", "tnb!", k_dropout},
    {"dropout_", "tnb!", k_dropout_},
    {"einsum", "sL!_", k_einsum},
    of_input("elu", Op::elu, Op::elu_backward),
    of_result("elu_", Op::elu, Op::elu_backward, true),
    {"embedding", "tt!___", k_embedding},
    {"empty", "I!d____", k_factory},
    {"empty_like", "t!d____", k_like},
    {"eq", "ta!", k_compare},
    of_one("exp", exp),
    {"expand", "tI!b", k_expand},
    {"expand_as", "tt!", k_expand},
    {"eye", "i!d____", k_eye},
    {"feature_dropout", "tnb!", k_feature_dropout},
    {"fill_", "ta!", k_change},
    {"flatten", "t!ii", k_flatten},
    {"flip", "t!I", k_flip},
    {"float", "t!", k_float},
    {"full", "In!d____", k_full},
    {"full_like", "tn!d____",
     [](GraphCall& c) { c.give(empty_like(Op::fill, c.tensor(0), c.dtype(2).value_or(c.tensor(0).dtype()))); }},
    {"gather", "tit!b", k_gather},
    {"ge", "ta!", k_compare},
    of_input("gelu", Op::gelu, Op::gelu_backward),
    of_input("gelu_", Op::gelu, Op::gelu_backward, true),
    {"group_norm", "ti!oonb", k_group_norm},
    {"gt", "ta!", k_compare},
    of_input("hardsigmoid", Op::hardsigmoid, Op::hardsigmoid_backward),
    of_input("hardsigmoid_", Op::hardsigmoid, Op::hardsigmoid_backward, true),
    of_input("hardswish", Op::hardswish, Op::hardswish_backward),
    of_input("hardswish_", Op::hardswish, Op::hardswish_backward, true),
    of_input("hardtanh", Op::hardtanh, Op::hardtanh_backward),
    of_input("hardtanh_", Op::hardtanh, Op::hardtanh_backward, true),
    {"im2col", "tIIII!", k_im2col},
    {"index", "tl!", k_index},
    {"index_select", "tit!", k_index_select},
    {"layer_norm", "tI!oonb", k_layer_norm},
    {"le", "ta!", k_compare},
    of_input("leaky_relu", Op::leaky_relu, Op::leaky_relu_backward),
    of_result("leaky_relu_", Op::leaky_relu, Op::leaky_relu_backward, true),
    {"lift_fresh", "t!", k_same},
    {"linalg_vector_norm", "tn!Ib_", k_vector_norm},
    {"linear", "tt!o", k_linear},
    of_input("log", Op::log, Op::div),
    {"log_softmax", "ti!d", k_log_softmax},
    {"logical_not", "t!", k_logical_not},
    {"lt", "ta!", k_compare},
    {"masked_fill", "tt!_", k_masked_fill},
    {"matmul", "tt!", k_matmul},
    {"max", "ta!b", k_max<Op::maximum>},
    {"max_pool2d", "tI!III_", k_max_pool2d},
    {"maximum", "tt!", k_extremum<Op::maximum>},
    {"mean", "t!Ib_", k_mean},
    {"min", "ta!b", k_max<Op::minimum>},
    {"minimum", "tt!", k_extremum<Op::minimum>},
    of_input("mish", Op::silu, Op::silu_backward),
    of_input("mish_", Op::silu, Op::silu_backward, true),
    {"mm", "tt!", k_matmul},
    {"mul", "ta!", k_mul},
    {"mul_", "ta!", k_mul_},
    {"narrow", "tiii!", k_narrow},
    {"ne", "ta!", k_compare},
    of_one("neg", neg),
    {"new_empty", "tI!d___", k_new},
    {"new_full", "tIn!d___", k_new_full},
    {"new_ones", "tI!d___", k_new},
    {"new_zeros", "tI!d___", k_new},
    {"normal_", "t!___", k_change},
    {"one_hot", "t!i", k_one_hot},
    {"ones", "I!d____", k_factory},
    {"ones_like", "t!d____", k_like},
    {"pad", "tI!s_", k_pad},
    {"permute", "tI!", k_permute},
    {"pow", "aa!", k_pow},
    {"rand", "I!d____", k_factory},
    {"rand_like", "t!d____", k_like},
    {"randn", "I!d____", k_factory},
    {"randn_like", "t!d____", k_like},
    {"reciprocal", "t!", k_without_gradient},
    of_result("relu", Op::relu, Op::threshold_backward),
    of_input("relu6", Op::hardtanh, Op::hardtanh_backward),
    of_input("relu6_", Op::hardtanh, Op::hardtanh_backward, true),
    of_result("relu_", Op::relu, Op::threshold_backward, true),
    {"repeat", "tI!", k_repeat},
    {"repeat_interleave", "t_!i_", k_repeat_interleave},
    {"reshape", "tI!", k_view},
    {"reshape_as", "tt!", k_view},
    {"rms_norm", "tI!on", k_rms_norm},
    {"roll", "tI!I", k_roll},
    of_one("rsqrt", rsqrt),
    {"rsub", "ta!n", k_rsub},
    {"scaled_dot_product_attention", "ttt!onb_b", k_attention},
    {"select", "tii!", k_select},
    of_input("selu", Op::elu, Op::elu_backward),
    of_result("sigmoid", Op::sigmoid, Op::sigmoid_backward),
    of_result("sigmoid_", Op::sigmoid, Op::sigmoid_backward, true),
    of_input("silu", Op::silu, Op::silu_backward),
    of_input("silu_", Op::silu, Op::silu_backward, true),
    {"sin", "t!", k_without_gradient},
    {"slice", "t!i___", k_slice},
    {"softmax", "ti!d", k_softmax},
    of_input("softplus", Op::softplus, Op::softplus_backward),
    {"split", "tI!i", k_split},
    {"split_with_sizes", "tI!i", k_split},
    of_one("sqrt", sqrt),
    {"square", "t!", k_square},
    {"squeeze", "t!I", k_squeeze},
    {"stack", "L!i", k_stack},
    {"std", "t!I_b", k_std},
    {"sub", "ta!n", k_sub},
    {"sub_", "ta!n", k_add_},
    {"sum", "t!Ib_", k_sum},
    {"swapaxes", "tii!", k_transpose},
    {"t", "t!", k_t},
    of_result("tanh", Op::tanh, Op::tanh_backward),
    of_result("tanh_", Op::tanh, Op::tanh_backward, true),
    {"tile", "tI!", k_repeat},
    {"to", "t!_____", k_to},
    {"transpose", "tii!", k_transpose},
    {"type_as", "tt!", k_to},
    {"unbind", "t!i", k_unbind},
    {"unflatten", "tiI!", k_unflatten},
    {"unfold", "tiii!", k_unfold},
    {"uniform_", "t!___", k_change},
    {"unsqueeze", "ti!", k_unsqueeze},
    {"upsample_bicubic2d", "t!____", k_upsample},
    {"upsample_bilinear2d", "t!____", k_upsample},
    {"upsample_nearest2d", "t!____", k_upsample},
    {"var", "t!I_b", k_var},
    {"var_mean", "t!I_b", k_var_mean},
    {"view", "t!_", k_view},
    {"view_as", "tt!", k_view},
    {"zero_", "t!", k_change},
    {"zeros", "I!d____", k_factory},
    {"zeros_like", "t!d____", k_like},
};

}  // namespace

static_assert([] {
  for (std::size_t i = 1; i < std::size(kOperators); ++i)
    if (!(std::string_view(kOperators[i - 1].name) < kOperators[i].name)) return false;
  return true;
}());

int find_operator(std::string_view name) {
  const auto before = [](const Entry& entry, std::string_view wanted) { return entry.name < wanted; };
  const Entry* found = std::lower_bound(std::begin(kOperators), std::end(kOperators), name, before);
  return found != std::end(kOperators) && found->name == name ? static_cast<int>(found - kOperators) : -1;
}

const char* operator_name(int index) { return kOperators[index].name; }

const char* operator_signature(int index) { return kOperators[index].signature; }

bool is_convolution(int index) { return std::string_view(kOperators[index].name).starts_with("conv"); }

void run_operator(int index, GraphCall& call) {
  const Entry& entry = kOperators[index];
  if (entry.kernel) return entry.kernel(call);
  const Tensor x = call.tensor(0);
  if (entry.unary) return call.give(entry.unary(x));
  if (entry.is_in_place && !can_change(call, x)) return;
  call.give(entry.of_result ? activation_of_result(entry.forward, entry.backward, x, entry.is_in_place)
                            : activation_of_input(entry.forward, entry.backward, x, entry.is_in_place));
}

}  // namespace oometer
