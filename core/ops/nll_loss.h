#pragma once

#include "tensor/tensor.h"

namespace oometer {

/// F.nll_loss(log_probabilities, target, reduction="sum" or "mean"): log_probabilities [n, classes], target [n].
Tensor nll_loss(const Tensor& log_probabilities, const Tensor& target);

}  // namespace oometer
