#pragma once

#include <cstdint>
#include <vector>

#include "config/activation.h"

namespace oometer {

class ConfigReader;

/// What the classes of a family are called that are copies of Llama's.
struct LlamaClassNames {
  const char *causal_lm, *model, *decoder_layer, *attention, *mlp, *rms_norm, *rotary_embedding;
  bool projects_first = false;  ///< see project (nn/attention.h)
  bool norms_heads = false;     ///< q_norm and k_norm (models/qwen3)

  bool operator==(const LlamaClassNames&) const = default;
};
inline constexpr LlamaClassNames kLlamaClassNames{"LlamaForCausalLM",    "LlamaModel", "LlamaDecoderLayer",
                                                  "LlamaAttention",      "LlamaMLP",   "LlamaRMSNorm",
                                                  "LlamaRotaryEmbedding"};

/// What a class with a head of labels learns (PretrainedConfig.problem_type).
enum class Problem : std::uint8_t { regression, single_label_classification, multi_label_classification };

/// A XForSequenceClassification or a XForTokenClassification in place of a XForCausalLM: what of its config decides
/// memory.
struct ClassifierConfig {
  const char* class_name = nullptr;  ///< null: the class is the causal LM
  std::int64_t num_labels = 2;
  Problem problem = Problem::single_label_classification;  ///< of sequences
  bool of_tokens = false;
  double dropout = 0.1;   ///< of tokens, before the head: classifier_dropout or hidden_dropout, where a class has them
  bool has_bias = false;  ///< of tokens: token_classification_bias

  explicit operator bool() const { return class_name != nullptr; }
  bool operator==(const ClassifierConfig&) const = default;
};

/// transformers 5.23, models/llama/configuration_llama.py, class LlamaConfig: the fields that decide memory.
struct LlamaConfig {
  const LlamaClassNames* names = &kLlamaClassNames;
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
  bool qkv_bias = false;     ///< attention_bias
  bool output_bias = false;  ///< the same, of o_proj
  bool mlp_bias = false;
  bool tie_word_embeddings = false;
  bool has_pad_token = false;               ///< pad_token_id
  bool float32_frequencies = false;         ///< of rotary embeddings, under zero.Init too (_compute_yarn_parameters)
  std::int64_t sliding_window = 0;          ///< tokens that each one sees; 0: all
  std::vector<std::int64_t> layer_windows;  ///< each layer's, 0 or that, in a class of layer_types; empty: it is all's
  ClassifierConfig classifier;

  /// What a layer sees of what came before: sliding_window, or 0.
  std::int64_t window_of(std::size_t layer) const {
    return layer_windows.empty() ? sliding_window : layer_windows[layer];
  }

  bool operator==(const LlamaConfig&) const = default;
};

/// Reads and validates as LlamaConfig and the modelling code would; what is wrong is noted in the reader.
LlamaConfig read_llama_config(ConfigReader& reader);

/// The fields that Llama's copies share with it, and what all of them ask of their heads.
LlamaConfig read_llama_sizes(ConfigReader& reader, const LlamaConfig& defaults);
void check_llama_heads(ConfigReader& reader, const LlamaConfig& config);

}  // namespace oometer
