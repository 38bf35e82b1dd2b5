#include "models/kit/shift_tokens.h"

#include "tensor/node.h"

namespace oometer {

Tensor shift_tokens_right(const Tensor& labels) {
  const Shape tokens = labels.sizes(), behind{tokens[0], tokens[1] - 1};
  const auto made = [&](Op op, const Shape& sizes, DType dtype = DType::int64) {
    return empty(labels.context(), op, sizes, dtype);
  };
  Tensor shifted_input_ids = made(Op::zeros, tokens);
  { const Tensor kept = made(Op::clone, behind); }
  const Tensor is_ignored = made(Op::eq, tokens, DType::boolean);
  return shifted_input_ids;
}

}  // namespace oometer
