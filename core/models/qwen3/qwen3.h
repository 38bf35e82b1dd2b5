#pragma once

#include "models/llama/llama.h"

/// transformers 5.23, models/qwen3/modeling_qwen3.py: what Qwen3Attention has and does that Llama's has not.
namespace oometer {

/// Its q_norm and k_norm, which follow the four projections.
void make_head_norms(LlamaAttention& self, const Builder& builder, const LlamaConfig& config,
                     const ModelOptions& options);

/// Queries, keys and values before positions are added: of the first two, each head is normalised.
AttentionInputs project_and_norm(const LlamaAttention& self, const Tensor& hidden_states);

}  // namespace oometer
