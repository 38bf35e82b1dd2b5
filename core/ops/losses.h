#pragma once

#include "tensor/tensor.h"

/// Losses of whole samples (PyTorch 2.15 on CUDA), means.
namespace oometer {

/// F.mse_loss(input, target), of the same size.
Tensor mse_loss(const Tensor& input, const Tensor& target);
/// F.binary_cross_entropy_with_logits(input, target), of the same size.
Tensor binary_cross_entropy_with_logits(const Tensor& input, const Tensor& target);

/// F.logsigmoid(input), of each element.
Tensor log_sigmoid(const Tensor& input);

}  // namespace oometer
