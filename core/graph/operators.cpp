#include "graph/operators.h"

#include <algorithm>

#include "ops/ops.h"
#include "ops/vision.h"

namespace oometer {

AtenOperators::AtenOperators() {
#define X(kind) \
  for (const AtenOperator& op : kind##_operators) by_name_.push_back(&op);
  OOMETER_OPERATOR_KINDS
#undef X
  std::sort(by_name_.begin(), by_name_.end(),
            [](const AtenOperator* a, const AtenOperator* b) { return std::string_view(a->name) < b->name; });
}

const AtenOperator* AtenOperators::find(std::string_view name) const {
  const auto found =
      std::lower_bound(by_name_.begin(), by_name_.end(), name,
                       [](const AtenOperator* op, std::string_view wanted) { return op->name < wanted; });
  return found != by_name_.end() && (*found)->name == name ? *found : nullptr;
}

bool is_convolution(const AtenOperator& op) { return std::string_view(op.name).starts_with("conv"); }

void run_operator(const AtenOperator& op, GraphCall& call) {
  if (op.kernel) return op.kernel(call);
  const Tensor x = call.tensor(0);
  if (op.unary) return call.give(op.unary(x));
  if (op.is_in_place && !can_change(call, x)) return;
  call.give(op.of_result ? activation_of_result(op.forward, op.backward, x, op.is_in_place)
                         : activation_of_input(op.forward, op.backward, x, op.is_in_place));
}

}  // namespace oometer
