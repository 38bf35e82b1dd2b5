// Made of nothing.
#include <cmath>

#include "graph/operators/table.h"
#include "ops/ops.h"

namespace oometer {
namespace {

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

void k_eye(GraphCall& c) {
  const std::int64_t n = c.integer(0, 1);
  give_new(c, Op::eye, {n, n}, c.dtype(1).value_or(DType::float32));
}

/// zeros, into which scatter_ writes (Onehot.cpp); without a number of classes the largest index is read.
void k_one_hot(GraphCall& c) {
  Shape sizes = c.tensor(0).sizes();
  if (c.integer(1, -1) < 1 || sizes.ndim() == Shape::kMaxDims) return c.fail("a number of classes that is not said");
  sizes.push_back(c.integer(1, -1));
  give_new(c, Op::one_hot, sizes, c.tensor(0).dtype());
}

// In alphabetical order.
constexpr AtenOperator kCreation[] = {
    {"arange", "n!______", k_arange},
    {"bernoulli", "t!_", k_like},
    {"constant", "Id!", k_factory},
    {"empty", "I!d____", k_factory},
    {"empty_like", "t!d____", k_like},
    {"eye", "i!d____", k_eye},
    {"full", "In!d____", k_full},
    {"full_like", "tn!d____",
     [](GraphCall& c) { c.give(empty_like(Op::fill, c.tensor(0), c.dtype(2).value_or(c.tensor(0).dtype()))); }},
    {"new_empty", "tI!d___", k_new},
    {"new_full", "tIn!d___", k_new_full},
    {"new_ones", "tI!d___", k_new},
    {"new_zeros", "tI!d___", k_new},
    {"one_hot", "t!i", k_one_hot},
    {"ones", "I!d____", k_factory},
    {"ones_like", "t!d____", k_like},
    {"rand", "I!d____", k_factory},
    {"rand_like", "t!d____", k_like},
    {"randn", "I!d____", k_factory},
    {"randn_like", "t!d____", k_like},
    {"zeros", "I!d____", k_factory},
    {"zeros_like", "t!d____", k_like},
};

}  // namespace

const std::span<const AtenOperator> creation_operators(kCreation);

}  // namespace oometer
