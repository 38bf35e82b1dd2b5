// Element by element.
#include "graph/operators/table.h"
#include "ops/experts.h"
#include "ops/masks.h"
#include "ops/ops.h"
#include "ops/vision.h"

namespace oometer {
namespace {

using Binary = Tensor (*)(const Tensor&, const Tensor&);

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

void k_div_(GraphCall& c) {
  const Tensor x = c.tensor(0), other = c.tensor(1);
  if (!can_change(c, x, other)) return;
  const bool has_gradient = other && (x.requires_grad() || other.requires_grad());
  if (has_gradient && x->base) return c.fail("a division of a view by a tensor, in place, under gradients");
  c.give(has_gradient ? div_in_place(x, other) : mul_in_place(x, {}));
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

void k_masked_fill_(GraphCall& c) {
  const Tensor x = c.tensor(0), mask = c.tensor(1);
  if (!can_change(c, x, mask)) return;
  if (c.is_tensor(2) && c.tensor(2).requires_grad()) return c.fail("a value that a gradient goes through");
  c.give(masked_fill_in_place(x, mask));
}

void k_copy_(GraphCall& c) {
  const Tensor x = c.tensor(0), source = c.tensor(1);
  if (can_change(c, x, source)) c.give(copy_in_place(x, source));
}

/// Where a number stands, a tensor of it is made for the call (TensorCompare.cpp, where).
void k_where(GraphCall& c) {
  const Tensor condition = c.tensor(0);
  if (!c.is_tensor(1) && !c.is_tensor(2)) return c.fail("two numbers");
  const DType dtype = c.tensor(c.is_tensor(1) ? 1 : 2).dtype();
  const auto operand = [&](unsigned i) {
    return c.is_tensor(i) ? c.tensor(i) : empty(c.context, Op::empty, {}, dtype);
  };
  const Tensor a = operand(1), b = operand(2);
  if (a.dtype() != b.dtype() && a.ndim() > 0 && b.ndim() > 0) return c.fail("two types");
  if (can_broadcast(c, condition, a) && can_broadcast(c, condition, b) && can_broadcast(c, a, b))
    c.give(where(condition, a, b));
}

/// Of booleans or integers.
template <Op op>
void k_bitwise(GraphCall& c) {
  const Tensor x = c.tensor(0), other = c.is_tensor(1) ? c.tensor(1) : x;
  if (is_floating_point(x.dtype())) return c.fail("numbers with a fraction");
  if (can_broadcast(c, x, other)) c.give(pointwise(op, {&x, &other}, std::min(x.dtype(), other.dtype())));
}

void k_floor_divide(GraphCall& c) {
  const Tensor x = c.tensor(0), other = c.is_tensor(1) ? c.tensor(1) : x;
  if (x.requires_grad() || turns_to_float(c, x)) return c.fail("numbers with a fraction");
  if (can_broadcast(c, x, other)) c.give(pointwise(Op::floor_divide, {&x, &other}, x.dtype()));
}

void k_to(GraphCall& c) {
  // to.dtype(dtype), to.device(device, dtype), _to_copy(dtype), to.other(tensor), type_as(tensor)
  const Tensor x = c.tensor(0);
  const DType dtype = c.is_tensor(1) ? c.tensor(1).dtype() : c.dtype(1).value_or(c.dtype(2).value_or(x.dtype()));
  bool is_contiguous = false;
  for (unsigned i = 2; i < c.argument_count(); ++i) is_contiguous |= c.text(i) == "torch.contiguous_format";
  c.give(is_contiguous && dtype != x.dtype() ? to_contiguous(x, dtype) : to(x, dtype));
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

// In alphabetical order.
constexpr AtenOperator kPointwise[] = {
    {"__and__", "ta!", k_bitwise<Op::bitwise_and>},
    {"__or__", "ta!", k_bitwise<Op::bitwise_or>},
    {"_to_copy", "t!d", k_to},
    of_one("abs", abs),
    {"add", "ta!n", k_add},
    {"add_", "ta!n", k_add_},
    {"addcmul", "ttt!n", k_addcmul},
    {"bernoulli_", "t!__", k_change},
    {"bitwise_and", "ta!", k_bitwise<Op::bitwise_and>},
    {"bitwise_not", "t!", k_bitwise<Op::bitwise_not>},
    {"bitwise_or", "ta!", k_bitwise<Op::bitwise_or>},
    {"clamp", "t!__", k_clamp},
    {"clamp_max", "t!_", k_clamp},
    {"clamp_min", "t!_", k_clamp},
    {"copy_", "tt!_", k_copy_},
    {"cos", "t!", k_without_gradient},
    {"div", "ta!_", k_div},
    {"div_", "ta!_", k_div_},
    {"dropout", "tnb!", k_dropout},
    {"dropout_", "tnb!", k_dropout_},
    of_input("elu", Op::elu, Op::elu_backward),
    of_result("elu_", Op::elu, Op::elu_backward, true),
    {"eq", "ta!", k_compare},
    of_one("exp", exp),
    {"feature_dropout", "tnb!", k_feature_dropout},
    {"fill_", "ta!", k_change},
    {"float", "t!", k_float},
    {"floor_divide", "ta!", k_floor_divide},
    {"ge", "ta!", k_compare},
    of_input("gelu", Op::gelu, Op::gelu_backward),
    of_input("gelu_", Op::gelu, Op::gelu_backward, true),
    {"gt", "ta!", k_compare},
    of_input("hardsigmoid", Op::hardsigmoid, Op::hardsigmoid_backward),
    of_input("hardsigmoid_", Op::hardsigmoid, Op::hardsigmoid_backward, true),
    of_input("hardswish", Op::hardswish, Op::hardswish_backward),
    of_input("hardswish_", Op::hardswish, Op::hardswish_backward, true),
    of_input("hardtanh", Op::hardtanh, Op::hardtanh_backward),
    of_input("hardtanh_", Op::hardtanh, Op::hardtanh_backward, true),
    {"le", "ta!", k_compare},
    of_input("leaky_relu", Op::leaky_relu, Op::leaky_relu_backward),
    of_result("leaky_relu_", Op::leaky_relu, Op::leaky_relu_backward, true),
    of_input("log", Op::log, Op::div),
    {"logical_and", "tt!", k_compare},
    {"logical_not", "t!", k_logical_not},
    {"logical_or", "tt!", k_compare},
    {"lt", "ta!", k_compare},
    {"masked_fill", "tt!_", k_masked_fill},
    {"masked_fill_", "tt!_", k_masked_fill_},
    of_input("mish", Op::silu, Op::silu_backward),
    of_input("mish_", Op::silu, Op::silu_backward, true),
    {"mul", "ta!", k_mul},
    {"mul_", "ta!", k_mul_},
    {"ne", "ta!", k_compare},
    of_one("neg", neg),
    {"normal_", "t!___", k_change},
    {"pow", "aa!", k_pow},
    {"reciprocal", "t!", k_without_gradient},
    of_result("relu", Op::relu, Op::threshold_backward),
    of_input("relu6", Op::hardtanh, Op::hardtanh_backward),
    of_input("relu6_", Op::hardtanh, Op::hardtanh_backward, true),
    of_result("relu_", Op::relu, Op::threshold_backward, true),
    of_one("rsqrt", rsqrt),
    {"rsub", "ta!n", k_rsub},
    of_input("selu", Op::elu, Op::elu_backward),
    of_result("sigmoid", Op::sigmoid, Op::sigmoid_backward),
    of_result("sigmoid_", Op::sigmoid, Op::sigmoid_backward, true),
    of_input("silu", Op::silu, Op::silu_backward),
    of_input("silu_", Op::silu, Op::silu_backward, true),
    {"sin", "t!", k_without_gradient},
    of_input("softplus", Op::softplus, Op::softplus_backward),
    of_one("sqrt", sqrt),
    {"square", "t!", k_square},
    {"sub", "ta!n", k_sub},
    {"sub_", "ta!n", k_add_},
    of_result("tanh", Op::tanh, Op::tanh_backward),
    of_result("tanh_", Op::tanh, Op::tanh_backward, true),
    {"to", "t!_____", k_to},
    {"type_as", "tt!", k_to},
    {"uniform_", "t!___", k_change},
    {"where", "taa!", k_where},
    {"zero_", "t!", k_change},
};

}  // namespace

const std::span<const AtenOperator> pointwise_operators(kPointwise);

}  // namespace oometer
