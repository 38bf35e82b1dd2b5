#pragma once

#include "tensor/tensor.h"

namespace oometer {

/// F.glu(x, dim=1) of x [b, 2 c, ...], which the log calls a sigmoid: one half times the other's (ATen 2.15,
/// GatedLinearUnit.cpp).
Tensor glu(const Tensor& x);

}  // namespace oometer
