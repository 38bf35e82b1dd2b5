#pragma once

#include "tensor/tensor.h"

/// Operators of xIELU (transformers 5.23, activations.py) that other models do without.
namespace oometer {

/// F.softplus(x).
Tensor softplus(const Tensor& x);
/// torch.expm1(x).
Tensor expm1(const Tensor& x);

}  // namespace oometer
