#pragma once

#include "config/activation.h"
#include "tensor/tensor.h"

namespace oometer {

/// transformers' ACT2FN[name] (activations.py, 5.23). Consumes its argument as the caller's temporary dies after it.
Tensor activate(Activation activation, const Tensor& x);

}  // namespace oometer
