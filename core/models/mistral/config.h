#pragma once

#include "models/llama/config.h"

namespace oometer {

/// transformers 5.23, models/mistral/modeling_mistral.py: every class is Llama's, without biases and with a window.
inline constexpr LlamaClassNames kMistralClassNames{"MistralForCausalLM",    "MistralModel", "MistralDecoderLayer",
                                                    "MistralAttention",      "MistralMLP",   "MistralRMSNorm",
                                                    "MistralRotaryEmbedding"};

/// Reads and validates as MistralConfig (models/mistral/configuration_mistral.py) and the modelling code would.
LlamaConfig read_mistral_config(ConfigReader& reader);

}  // namespace oometer
