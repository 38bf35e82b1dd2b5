#pragma once

#include "models/llama/config.h"

namespace oometer {

/// transformers 5.23, models/olmo2/modeling_olmo2.py.
inline constexpr LlamaClassNames kOlmo2ClassNames{"Olmo2ForCausalLM",    "Olmo2Model", "Olmo2DecoderLayer",
                                                  "Olmo2Attention",      "Olmo2MLP",   "Olmo2RMSNorm",
                                                  "Olmo2RotaryEmbedding"};

/// Reads and validates as Olmo2Config (models/olmo2/configuration_olmo2.py) and the modelling code would.
LlamaConfig read_olmo2_config(ConfigReader& reader);

}  // namespace oometer
