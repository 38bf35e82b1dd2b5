#pragma once

#include "nn/attention.h"

namespace oometer {

/// Attention with a bias for each query and key [b, heads, queries, keys], which may want a gradient: SDPA has it with
/// the mask in one (create_position_bias_mask, integrations/sdpa_attention.py), eager adds it, then the mask, to
/// weights that stay in their own type.
AttentionOutputs attend_with_bias(const AttentionCall& call, const AttentionInputs& states, const Tensor& mask,
                                  const Tensor& position_bias);

/// create_position_bias_mask. `call.causal`: there is no mask, and tokens see those before.
Tensor position_bias_mask(const AttentionCall& call, const Tensor& position_bias, const Tensor& attention_mask);

}  // namespace oometer
