#pragma once

#include "models/llama/config.h"

namespace oometer {

/// transformers 5.23, models/qwen2/modeling_qwen2.py: every class is Llama's, with biases on the three projections that
/// make queries, keys and values. So its config is one of Llama's, under these names.
inline constexpr LlamaClassNames kQwen2ClassNames{"Qwen2ForCausalLM",    "Qwen2Model", "Qwen2DecoderLayer",
                                                  "Qwen2Attention",      "Qwen2MLP",   "Qwen2RMSNorm",
                                                  "Qwen2RotaryEmbedding"};

/// Reads and validates as Qwen2Config (models/qwen2/configuration_qwen2.py) and the modelling code would.
LlamaConfig read_qwen2_config(ConfigReader& reader);

/// Which layers have a sliding window. `max_window_layers`: the class's default.
void read_layer_types(ConfigReader& reader, LlamaConfig& config, std::int64_t max_window_layers);

}  // namespace oometer
