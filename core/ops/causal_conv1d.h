#pragma once

#include "tensor/tensor.h"

/// The package causal_conv1d (1.7.0: causal_conv1d/causal_conv1d_interface.py, cpp_functions.py,
/// csrc/causal_conv1d.cpp).
namespace oometer {

/// CausalConv1dFn: x [b, channels, s], weight [channels, width], bias [channels] or null; [b, channels, s].
Tensor causal_conv1d_fn(const Tensor& x, const Tensor& weight, const Tensor& bias);
/// causal_conv1d_update: of new tokens behind a state, which is written over.
Tensor causal_conv1d_update(const Tensor& x, const Tensor& conv_state);

}  // namespace oometer
