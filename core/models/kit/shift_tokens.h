#pragma once

#include "tensor/tensor.h"

namespace oometer {

/// shift_tokens_right (modeling_bart.py, and alike in Whisper's, Moonshine's and Canary's): what a decoder reads where
/// only labels are given, [batch, tokens] of int64.
Tensor shift_tokens_right(const Tensor& labels);

}  // namespace oometer
