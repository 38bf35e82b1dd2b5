#pragma once

#include <cstdint>
#include <memory>

#include "config/activation.h"
#include "models/kit/text_config.h"
#include "models/model.h"

namespace oometer {

/// class Kosmos2_5VisionConfig (transformers 5.23, models/kosmos2_5/configuration_kosmos2_5.py).
struct Kosmos2_5VisionConfig {
  std::int64_t hidden_size = 1536, patch_embed_hidden_size = 768, intermediate_size = 3968, head_dim = 64,
               num_hidden_layers = 18, num_attention_heads = 24;
  /// Rows of the tables of rows and columns; its processor pads any image to as many patches.
  std::int64_t max_num_patches = 4096;
  double dropout_rate = 0, attention_dropout = 0;
  Activation dense_act_fn = Activation::gelu_new;

  std::int64_t inner_dim() const { return num_attention_heads * head_dim; }
  bool operator==(const Kosmos2_5VisionConfig&) const = default;
};

/// class Kosmos2_5TextConfig. `layer_dropout` is its dropout.
struct Kosmos2_5TextConfig : TextConfig {
  double activation_dropout = 0;
  bool operator==(const Kosmos2_5TextConfig&) const = default;
};

struct Kosmos2_5Config {
  Kosmos2_5VisionConfig vision;
  Kosmos2_5TextConfig text;
  std::int64_t latent_query_num = 2048;
  bool operator==(const Kosmos2_5Config&) const = default;
};

inline constexpr LlamaClassNames kKosmos2_5Names{"Kosmos2_5ForConditionalGeneration",
                                                 "Kosmos2_5TextTransformer",
                                                 "Kosmos2_5TextBlock",
                                                 "Kosmos2_5TextAttention",
                                                 "Kosmos2_5TextFFN",
                                                 "LayerNorm",
                                                 ""};
inline constexpr const char* kKosmos2_5VisionLayer = "Kosmos2_5VisionLayer";

/// Kosmos2_5ForConditionalGeneration (models/kosmos2_5/modeling_kosmos2_5.py).
std::unique_ptr<Model> build_kosmos2_5(Context& context, const Kosmos2_5Config& config, const DataConfig& data,
                                       const ModelOptions& options);

}  // namespace oometer
