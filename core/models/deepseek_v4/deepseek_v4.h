#pragma once

#include "models/deepseek_v4/config.h"
#include "models/kit/decoder.h"

/// transformers 5.23, models/deepseek_v4/modeling_deepseek_v4.py.
namespace oometer {

inline constexpr LlamaClassNames kDeepseekV4{"DeepseekV4ForCausalLM",    "DeepseekV4Model", "DeepseekV4DecoderLayer",
                                             "DeepseekV4Attention",      "DeepseekV4MLP",   "DeepseekV4RMSNorm",
                                             "DeepseekV4RotaryEmbedding"};

/// DeepseekV4Experts._apply_gate: both halves are limited.
Tensor limited_gate(const Tensor& gate_up);

DecoderParts deepseek_v4_parts(const DeepseekV4Config& config, const ModelOptions& options);

}  // namespace oometer
