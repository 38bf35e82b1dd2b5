#include <algorithm>

#include "ops/ops.h"
#include "ops/vision.h"
#include "tensor/kernel.h"
#include "tensor/node.h"

namespace oometer {

namespace {

/// c10::promoteTypes for the floating types that meet here.
DType promote(DType a, DType b) {
  if (a == b) return a;
  if (is_half(a) && is_half(b)) return DType::float32;
  return std::min(a, b);  // float64 < float32 < halves < integers
}

/// The memory order that TensorIterator gives an operator's result: that of its operands, the first deciding
/// (TensorIterator.cpp, reorder_dimensions and allocate_or_resize_outputs).
Shape output_strides(const Shape& sizes, std::initializer_list<const Tensor*> operands) {
  const Tensor& first = **operands.begin();
  if (first.sizes() == sizes && first.is_non_overlapping_and_dense()) return first.strides();
  const int n = sizes.ndim();
  const auto stride_of = [&](const Tensor& operand, int dim) -> std::int64_t {
    const int own = dim - (n - operand.ndim());
    return own < 0 || (operand.size(own) == 1 && sizes[dim] != 1) ? 0 : operand.strides()[own];
  };
  const auto should_swap = [&](int dim0, int dim1) {
    for (const Tensor* operand : operands) {
      const std::int64_t stride0 = stride_of(*operand, dim0), stride1 = stride_of(*operand, dim1);
      if (stride0 == 0 || stride1 == 0) continue;
      if (stride0 != stride1) return stride0 < stride1 ? -1 : 1;
      if (sizes[dim0] > sizes[dim1]) return 1;
    }
    return 0;
  };
  std::array<int, Shape::kMaxDims> order{};  // fastest dimension first
  for (int i = 0; i < n; ++i) order[static_cast<unsigned>(i)] = n - 1 - i;
  for (int i = 1; i < n; ++i) {
    int dim1 = i;
    for (int dim0 = i - 1; dim0 >= 0; --dim0) {
      const int comparison = should_swap(order[static_cast<unsigned>(dim0)], order[static_cast<unsigned>(dim1)]);
      if (comparison > 0) {
        std::swap(order[static_cast<unsigned>(dim0)], order[static_cast<unsigned>(dim1)]);
        dim1 = dim0;
      } else if (comparison < 0) {
        break;
      }
    }
  }
  Shape strides = sizes;
  std::int64_t stride = 1;
  for (int i = 0; i < n; ++i) {
    const int dim = order[static_cast<unsigned>(i)];
    strides[dim] = stride;
    stride = checked_product(stride, sizes[dim]);
  }
  return strides;
}

Tensor result_of(Op op, const Tensor& a, const Tensor& b, DType dtype) {
  const Shape sizes = a.sizes() == b.sizes() ? a.sizes() : broadcast(a.sizes(), b.sizes());
  return empty_strided(a.context(), op, sizes, output_strides(sizes, {&a, &b}), dtype);
}

Tensor result_of(Op op, const Tensor& a, const Tensor& b) {
  // A tensor without dimensions does not promote one with (c10/core/ScalarType.h, result_type).
  const DType dtype = b.ndim() == 0 && a.ndim() > 0   ? a.dtype()
                      : a.ndim() == 0 && b.ndim() > 0 ? b.dtype()
                                                      : promote(a.dtype(), b.dtype());
  return result_of(op, a, b, dtype);
}

void pass_gradient(Backward& b) {
  for (unsigned i = 0; i < b.node.edges.size(); ++i)
    if (b.wants(i)) b.give(i, b.grad());
}

/// An activation's backward: one new tensor from the gradient and what was saved.
template <Op backward>
void activation_backward(Backward& b) {
  const Tensor& saved = b.saved(0);
  // Its iterator has the result before the gradient, whose order in memory is its own (Activation.cpp).
  const bool follows_saved = backward == Op::threshold_backward;
  b.give(0, follows_saved ? pointwise(backward, {&saved, &b.grad()}, b.grad().dtype())
                          : pointwise(backward, {&b.grad(), &saved}, b.grad().dtype()));
}

/// An activation that keeps its input.
template <Op forward, Op backward>
Tensor activation_of_input(const Tensor& x) {
  Record record(forward, activation_backward<backward>, {&x});
  record.save(x);
  return record.output(empty_like(forward, x));
}

/// An activation that keeps its result.
template <Op forward, Op backward>
Tensor activation_of_result(const Tensor& x) {
  Record record(forward, activation_backward<backward>, {&x});
  Tensor result = empty_like(forward, x);
  record.save_output(result);
  return record.output(std::move(result));
}

/// A step whose backward scales the gradient by a number.
Tensor scaled(Op op, const Tensor& x) {
  Record record(op, [](Backward& b) { b.give(0, empty_like(b.node.op, b.grad())); }, {&x});
  return record.output(empty_like(op, x));
}

}  // namespace

Tensor pointwise(Op op, std::initializer_list<const Tensor*> operands, DType dtype) {
  Shape sizes = (*operands.begin())->sizes();
  for (const Tensor* operand : operands) sizes = broadcast(sizes, operand->sizes());
  Tensor result = empty_strided((*operands.begin())->context(), op, sizes, output_strides(sizes, operands), dtype);
  reads(op, result, operands);
  return result;
}

Tensor to(const Tensor& x, DType dtype) {
  if (x.dtype() == dtype) return x;
  Record record(Op::to_copy, [](Backward& b) { b.give(0, to(b.grad(), b.node.dtype)); }, {&x});
  if (record) record->dtype = x.dtype();
  return record.output(empty_like(Op::to_copy, x, dtype));
}

Tensor clone(const Tensor& x) {
  Record record(Op::clone, pass_gradient, {&x});
  return record.output(empty_like(Op::clone, x));
}

Tensor copy_to_layout(Op op, const Tensor& x, const Tensor& layout) {
  const Shape& strides = layout.is_non_overlapping_and_dense() ? layout.strides() : contiguous_strides(x.sizes());
  return empty_strided(x.context(), op, x.sizes(), strides, x.dtype());
}

Tensor add(const Tensor& a, const Tensor& b) {
  Record record(Op::add, pass_gradient, {&a, &b});
  return record.output(result_of(Op::add, a, b));
}

Tensor sub(const Tensor& a, const Tensor& b) {
  Record record(Op::sub,
                [](Backward& call) {
                  if (call.wants(1)) call.give(1, neg(call.grad()));
                  if (call.wants(0)) call.give(0, call.grad());
                },
                {&a, &b});
  return record.output(result_of(Op::sub, a, b));
}

Tensor add_scalar(const Tensor& x) {
  Record record(Op::add, pass_gradient, {&x});
  return record.output(empty_like(Op::add, x));
}

void add_(Tensor& a, const Tensor& b) { kernel(Op::add, {&a, &b}, a); }

Tensor add_bias_(Tensor output, const Tensor& bias) {
  Record record(Op::add, pass_gradient, {&output, &bias});
  kernel(Op::add, {&output, &bias}, output);
  if (!record) return output;
  return record.output(alias(output, output.sizes(), output.strides()));
}

Tensor mul(const Tensor& a, const Tensor& b) {
  Record record(Op::mul,
                [](Backward& call) {
                  // Generated code takes its inputs by name, "other" before "self": which of two equally large results
                  // goes first.
                  const Tensor self = call.wants(1) ? call.saved(0) : Tensor(),
                               other = call.wants(0) ? call.saved(1) : Tensor();
                  if (call.wants(1)) call.give(1, mul(call.grad(), self));
                  if (call.wants(0)) call.give(0, mul(call.grad(), other));
                },
                {&a, &b});
  if (record.wants(0)) record.save(b, 1);  // "other" before "self"
  if (record.wants(1)) record.save(a, 0);
  return record.output(result_of(Op::mul, a, b));
}

Tensor mul_scalar_(Tensor x) {
  Record record(Op::mul, [](Backward& call) { call.give(0, mul_scalar(call.grad())); }, {&x});
  kernel(Op::mul, {&x}, x);
  if (!record) return x;
  return record.output(alias(x, x.sizes(), x.strides()));
}

Tensor mul_scalar(const Tensor& x) { return scaled(Op::mul, x); }
Tensor div_scalar(const Tensor& x) { return scaled(Op::div, x); }

Tensor softcap(Tensor x) {
  x = div_scalar(x);
  x = tanh(x);
  return mul_scalar(x);
}
Tensor neg(const Tensor& x) { return scaled(Op::neg, x); }

void div_backward(Backward& call) {
  // div_tensor_self_backward: grad / other; div_tensor_other_backward: -grad * ((self / other) / other).
  const Tensor self = call.wants(1) ? call.saved(0) : Tensor(), other = call.saved(1);
  if (call.wants(1)) {
    const Tensor ratio = div(self, other);
    const Tensor inner = div(ratio, other);
    const Tensor negative = neg(call.grad());
    call.give(1, mul(negative, inner));
  }
  if (call.wants(0)) call.give(0, div(call.grad(), other));
}

Tensor div(const Tensor& a, const Tensor& b) {
  Record record(Op::div, div_backward, {&a, &b});
  record.save(b, 1);
  if (record.wants(1)) record.save(a, 0);
  return record.output(result_of(Op::div, a, b));
}

Tensor exp(const Tensor& x_in) {
  const Tensor x = autocast_float32(x_in);
  Record record(Op::exp, [](Backward& b) { b.give(0, mul(b.grad(), b.saved(0))); }, {&x});
  Tensor result = empty_like(Op::exp, x);
  record.save_output(result);
  return record.output(std::move(result));
}

Tensor pow(const Tensor& x_in, double exponent) {
  const Tensor x = autocast_float32(x_in);
  // pow_backward, FunctionsManual.cpp: grad * (exponent * self.pow(exponent - 1)); all three are there at the end.
  Record record(Op::pow,
                [](Backward& b) {
                  const Tensor& self = b.saved(0);
                  const Tensor power = empty_like(Op::pow, self);
                  const Tensor scaled_power = mul_scalar(power);
                  b.give(0, mul(b.grad(), scaled_power));
                },
                {&x});
  (void)exponent;
  record.save(x);
  return record.output(empty_like(Op::pow, x));
}

Tensor rsqrt(const Tensor& x_in) {
  const Tensor x = autocast_float32(x_in);
  // -0.5 * grad * result.pow(3)
  Record record(Op::rsqrt,
                [](Backward& b) {
                  const Tensor& result = b.saved(0);
                  const Tensor half = mul_scalar(b.grad());
                  const Tensor cube = empty_like(Op::pow, result);
                  b.give(0, mul(half, cube));
                },
                {&x});
  Tensor result = empty_like(Op::rsqrt, x);
  record.save_output(result);
  return record.output(std::move(result));
}

Tensor cos(const Tensor& x) {
  Record record(Op::cos,
                [](Backward& b) {  // grad * -self.sin()
                  Tensor slope = empty_like(Op::sin, b.saved(0));
                  slope = neg(slope);
                  b.give(0, mul(b.grad(), slope));
                },
                {&x});
  record.save(x);
  return record.output(empty_like(Op::cos, x));
}

Tensor sin(const Tensor& x) {
  Record record(Op::sin,
                [](Backward& b) {  // grad * self.cos()
                  const Tensor slope = empty_like(Op::cos, b.saved(0));
                  b.give(0, mul(b.grad(), slope));
                },
                {&x});
  record.save(x);
  return record.output(empty_like(Op::sin, x));
}

Tensor silu(const Tensor& x) { return activation_of_input<Op::silu, Op::silu_backward>(x); }
Tensor gelu(const Tensor& x) { return activation_of_input<Op::gelu, Op::gelu_backward>(x); }
Tensor relu(const Tensor& x) { return activation_of_result<Op::relu, Op::threshold_backward>(x); }
Tensor sigmoid(const Tensor& x) { return activation_of_result<Op::sigmoid, Op::sigmoid_backward>(x); }
Tensor tanh(const Tensor& x) { return activation_of_result<Op::tanh, Op::tanh_backward>(x); }

// fused_dropout_cuda (ATen/native/cuda/Dropout.cu): the mask comes first.
Tensor dropout(const Tensor& x, double p) {
  if (p == 0 || !x.context().training) return x;
  Record record(Op::native_dropout,
                [](Backward& b) {
                  // empty_like(grad, grad.suggest_memory_format())
                  const Tensor& grad = b.grad();
                  const bool channels_last = grad.ndim() > 3 && !grad.is_contiguous() && is_channels_last(grad);
                  b.give(0, in_order_of(grad, Op::native_dropout_backward, grad.sizes(), channels_last));
                },
                {&x});
  const Tensor mask = empty_like(Op::native_dropout, x, DType::boolean);
  Tensor result = empty_like(Op::native_dropout, x);
  record.save(mask);
  return record.output(std::move(result));
}

}  // namespace oometer
