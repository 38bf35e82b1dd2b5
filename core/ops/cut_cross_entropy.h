#pragma once

#include <cstdint>

#include "tensor/tensor.h"

namespace oometer {

/// cce_linear_cross_entropy with shift=1 and the options of cce_patch (Apple's cut_cross_entropy in Axolotl's fork,
/// axolotl-ai-cloud/ml-cross-entropy at 5f0c7a7, cce.py), a sum or a mean: the head and the loss without logits.
/// hidden_states [b, s, h] and lm_head [classes, h] in 16 bits; labels [b, s], of which `scored` are not -100 after the
/// shift.
Tensor cut_cross_entropy(const Tensor& hidden_states, const Tensor& lm_head, const Tensor& labels, std::int64_t scored);

}  // namespace oometer
