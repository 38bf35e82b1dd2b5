#include "distributed/input_cast.h"

#include "ops/ops.h"

namespace oometer {

void InputCast::apply(ModelInputs& inputs, DType dtype) {
  cast_ = inputs.floating();
  for (Tensor* input : cast_) {
    before_.push_back(*input);
    *input = to(*input, dtype);
  }
}

void InputCast::undo() {
  for (std::size_t i = 0; i < cast_.size(); ++i) *cast_[i] = std::move(before_[i]);
  before_.clear();
  cast_.clear();
}

}  // namespace oometer
