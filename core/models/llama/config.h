#pragma once

#include <cstdint>

#include "config/activation.h"

namespace oometer {

class ConfigReader;

/// transformers 5.23, models/llama/configuration_llama.py, class LlamaConfig: the fields that decide memory.
struct LlamaConfig {
  std::int64_t vocab_size = 32000;
  std::int64_t hidden_size = 4096;
  std::int64_t intermediate_size = 11008;
  std::int64_t num_hidden_layers = 32;
  std::int64_t num_attention_heads = 32;
  std::int64_t num_key_value_heads = 32;  ///< null in a config: num_attention_heads
  std::int64_t head_dim = 128;            ///< null in a config: hidden_size / num_attention_heads
  std::int64_t max_position_embeddings = 2048;
  Activation hidden_act = Activation::silu;
  double attention_dropout = 0.0;
  bool attention_bias = false;
  bool mlp_bias = false;
  bool tie_word_embeddings = false;

  bool operator==(const LlamaConfig&) const = default;
};

/// Reads and validates as LlamaConfig and the modelling code would; what is wrong is noted in the reader.
LlamaConfig read_llama_config(ConfigReader& reader);

}  // namespace oometer
