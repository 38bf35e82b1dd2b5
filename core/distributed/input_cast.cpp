#include "distributed/input_cast.h"

#include "ops/ops.h"

namespace oometer {

void InputCast::apply(Model& model, DType dtype) {
  for (Tensor* input : model.floating_inputs()) {
    before_.push_back(*input);
    *input = to(*input, dtype);
  }
}

void InputCast::undo(Model& model) {
  std::size_t i = 0;
  for (Tensor* input : model.floating_inputs())
    if (i < before_.size()) *input = std::move(before_[i++]);
  before_.clear();
}

}  // namespace oometer
