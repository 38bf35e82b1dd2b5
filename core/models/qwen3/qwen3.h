#pragma once

#include "models/llama/llama.h"

namespace oometer {

/// What Qwen3Attention.forward (transformers 5.23, models/qwen3/modeling_qwen3.py) does before positions are added, in
/// place of Llama's three projections: queries and keys are normalised, each head of them.
AttentionInputs project_and_norm(const LlamaAttention& self, const Tensor& hidden_states);

}  // namespace oometer
