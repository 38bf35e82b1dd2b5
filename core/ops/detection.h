#pragma once

#include "tensor/tensor.h"

/// Operators that the losses of detectors are made of (PyTorch 2.15 on CUDA).
namespace oometer {

/// torch.cdist(a, b, p=1) of [n, d] and [m, d], which autograd does not follow here.
Tensor cdist(const Tensor& a, const Tensor& b);
/// torch.diag of a square: its diagonal, copied.
Tensor diagonal(const Tensor& x);
/// torch.log
Tensor log(const Tensor& x);
/// F.binary_cross_entropy_with_logits(input, target, weight, reduction="none"); `weight` may be null.
Tensor binary_cross_entropy_elements(const Tensor& input, const Tensor& target, const Tensor& weight = {});
/// F.l1_loss(input, target, reduction="none")
Tensor l1_loss_elements(const Tensor& input, const Tensor& target);
/// F.cross_entropy(logits, target, weight), a mean: logits [n, classes, length], target [n, length].
Tensor weighted_cross_entropy(const Tensor& logits, const Tensor& target, const Tensor& weight);

}  // namespace oometer
