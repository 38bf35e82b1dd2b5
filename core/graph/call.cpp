#include "graph/call.h"

#include <algorithm>

#include "ops/ops.h"

namespace oometer {

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

std::string text_of(const Shape& sizes) {
  std::string out = "[";
  for (const std::int64_t size : sizes) out += (out.size() > 1 ? ", " : "") + std::to_string(size);
  return out + "]";
}

bool are_sizes(GraphCall& c, const Shape& sizes) {
  for (const std::int64_t size : sizes) {
    if (size >= 0 && size < kSizeLimit) continue;
    c.fail("sizes of " + text_of(sizes));
    return false;
  }
  return true;
}

bool has_dims(GraphCall& c, const Tensor& x, int least, int most) {
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

bool can_change(GraphCall& c, const Tensor& x, const Tensor& other) {
  if (other && (!can_broadcast(c, x, other) || !(broadcast(x.sizes(), other.sizes()) == x.sizes()))) {
    c.fail("a result that does not fit into " + text_of(x.sizes()));
    return false;
  }
  const Tensor& leaf = x->base ? x->base : x;
  if (c.context.grad_mode && leaf.requires_grad() && !leaf->grad_fn)
    c.fail("a leaf that asks for a gradient, in place");
  return c.ok();
}

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

}  // namespace oometer
