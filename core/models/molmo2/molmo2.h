#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "models/kit/text_config.h"
#include "models/model.h"

/// transformers 5.23, models/molmo2: the fields that decide memory.
namespace oometer {

inline constexpr LlamaClassNames kMolmo2Names{"Molmo2ForConditionalGeneration",
                                              "Molmo2TextModel",
                                              "Molmo2DecoderLayer",
                                              "Molmo2Attention",
                                              "Molmo2MLP",
                                              "Molmo2RMSNorm",
                                              "Molmo2RotaryEmbedding"};
inline constexpr const char* kMolmo2VisionLayer = "Molmo2VisionEncoderLayer";

struct Molmo2AttentionConfig {
  std::int64_t in = 1152, out = 1152, num_attention_heads = 16, num_key_value_heads = 16, head_dim = 72;
  double attention_dropout = 0;
  bool attention_bias = true;
  bool operator==(const Molmo2AttentionConfig&) const = default;
};

/// class Molmo2VisionConfig, class Molmo2AdapterConfig, class Molmo2TextConfig
struct Molmo2Config {
  Molmo2AttentionConfig attention, pooling;
  std::int64_t intermediate_size = 4304, num_hidden_layers = 25, image_size = 378, patch_size = 14, num_channels = 3,
               num_position_embeddings = 729;
  Activation hidden_act = Activation::gelu_tanh;
  std::vector<std::int64_t> vision_feature_layer{24, 18};  ///< behind which layer
  std::int64_t adapter_intermediate_size = 18944;
  Activation adapter_act = Activation::silu;
  bool mlp_bias = false;
  TextConfig text;
  std::int64_t additional_vocab_size = 128;
  bool norm_after = false;
  bool norms_whole = false;  ///< qk_norm_type "olmo": all heads at once

  std::int64_t side() const { return image_size / patch_size; }  ///< patches of a crop, each way
  std::int64_t pixels_per_patch() const { return patch_size * patch_size * num_channels; }
  bool operator==(const Molmo2Config&) const = default;
};

/// What its processor makes of an image: crops, the whole image first, and tokens, each of a window of patches.
struct Molmo2Crops {
  std::int64_t crops = 0, pooled = 0;  ///< tokens of the features
  std::int64_t tokens = 0;             ///< with those around them
};
Molmo2Crops molmo2_crops(const Molmo2Config& config, std::int64_t height, std::int64_t width);

std::unique_ptr<Model> build_molmo2(Context& context, const Molmo2Config& config, const DataConfig& data,
                                    const ModelOptions& options);

}  // namespace oometer
