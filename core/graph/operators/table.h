#pragma once

#include <span>

#include "graph/call.h"
#include "tensor/op.h"

/// One table of operators a kind.
namespace oometer {

using Unary = Tensor (*)(const Tensor&);

/// One of ATen's operators is a kernel; or a function of one tensor; or an activation, of its input or its result.
struct AtenOperator {
  const char* name;
  /// Kinds of its arguments, a letter each: t tensor, o tensor or None, L list of tensors, l the same with Nones, a
  /// tensor or number, i integer, I integer or list of integers, n number, b boolean, d type, s text, _ anything. Those
  /// before the `!` must be there.
  const char* signature;
  void (*kernel)(GraphCall&) = nullptr;
  Unary unary = nullptr;
  Op forward = Op::none, backward = Op::none;
  bool of_result = false, is_in_place = false;
};

constexpr AtenOperator of_input(const char* name, Op forward, Op backward, bool is_in_place = false) {
  return {name, "t!____", nullptr, nullptr, forward, backward, false, is_in_place};
}
constexpr AtenOperator of_result(const char* name, Op forward, Op backward, bool is_in_place = false) {
  return {name, "t!____", nullptr, nullptr, forward, backward, true, is_in_place};
}
constexpr AtenOperator of_one(const char* name, Unary unary) { return {name, "t!", nullptr, unary}; }

// Their tables: `<kind>_operators` in <kind>.cpp.
#define OOMETER_OPERATOR_KINDS \
  X(views)                     \
  X(creation) X(pointwise) X(reduce) X(matmul) X(convolution) X(normalization) X(attention) X(indexing) X(vision)

#define X(kind) extern const std::span<const AtenOperator> kind##_operators;
OOMETER_OPERATOR_KINDS
#undef X

}  // namespace oometer
