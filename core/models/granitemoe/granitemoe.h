#pragma once

#include "models/kit/mixture.h"

namespace oometer {

/// GraniteMoeTopKRouter.forward: softmax of the best logits in float32, in the type of what came in.
Routing softmax_in_float32(const Router& router, const Tensor& hidden_states);

}  // namespace oometer
