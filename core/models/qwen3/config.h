#pragma once

#include "models/llama/config.h"

namespace oometer {

/// transformers 5.23, models/qwen3/modeling_qwen3.py: every class is Llama's, but for two norms in the attention.
inline constexpr LlamaClassNames kQwen3ClassNames{"Qwen3ForCausalLM",     "Qwen3Model", "Qwen3DecoderLayer",
                                                  "Qwen3Attention",       "Qwen3MLP",   "Qwen3RMSNorm",
                                                  "Qwen3RotaryEmbedding", false,        true};

/// Reads and validates as Qwen3Config (models/qwen3/configuration_qwen3.py) and the modelling code would.
LlamaConfig read_qwen3_config(ConfigReader& reader);

}  // namespace oometer
