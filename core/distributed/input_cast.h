#pragma once

#include <vector>

#include "models/model.h"
#include "tensor/tensor_list.h"

namespace oometer {

/// The batch's floating-point tensors in the type that FSDP computes in, for as long as a forward lasts: FSDP1's
/// _root_cast_forward_input and FSDP2's cast_forward_inputs (2.15).
class InputCast {
 public:
  void apply(ModelInputs& inputs, DType dtype);
  /// The batch is again as it was; nothing, if it was not cast.
  void undo();

 private:
  std::vector<Tensor*> cast_;
  TensorList before_;
};

}  // namespace oometer
