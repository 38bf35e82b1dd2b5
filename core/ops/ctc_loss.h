#pragma once

#include <cstdint>

#include "tensor/tensor.h"

namespace oometer {

/// _ctc_loss (ATen 2.15, native/cuda/LossCTC.cu), which the log calls a negative log likelihood: log_probs [t, b,
/// classes] in float32, targets one after another, so many a sample; a loss a sample. Lengths lie on the host.
Tensor ctc_loss(const Tensor& log_probs, const Tensor& targets, std::int64_t targets_per_sample);

}  // namespace oometer
