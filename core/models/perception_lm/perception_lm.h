#pragma once

#include <cstdint>
#include <memory>

#include "models/llama/config.h"
#include "models/model.h"

/// transformers 5.23, models/perception_lm/modeling_perception_lm.py, and timm's Perception Encoder (timm 1.0.31,
/// models/eva.py). Names and order of steps are those files'.
namespace oometer {

/// timm's Eva, as vit_pe_core_... and vit_pe_lang_... are made, without a pool.
struct PerceptionEncoderConfig {
  std::int64_t embed_dim = 1024, depth = 24, num_heads = 16, hidden_features = 4096, patch_size = 14, image_size = 336;
  bool class_token = true;
  bool scales_layers = false;  ///< init_values
  bool has_last_norm = true;   ///< use_post_transformer_norm

  std::int64_t side() const { return image_size / patch_size; }  ///< in patches
  std::int64_t head_dim() const { return embed_dim / num_heads; }
  bool operator==(const PerceptionEncoderConfig&) const = default;
};

/// class PerceptionLMConfig (models/perception_lm/configuration_perception_lm.py).
struct PerceptionLmConfig {
  PerceptionEncoderConfig vision;
  LlamaConfig text;
  bool vision_use_cls_token = true;
  std::int64_t projector_pooling_ratio = 1;
  bool tie_word_embeddings = false;

  std::int64_t tokens_per_tile() const {
    const std::int64_t side = vision.side() / projector_pooling_ratio;
    return side * side;
  }
  bool operator==(const PerceptionLmConfig&) const = default;
};

/// PerceptionLMForConditionalGeneration.
std::unique_ptr<Model> build_perception_lm(Context& context, const PerceptionLmConfig& config, const DataConfig& data,
                                           const ModelOptions& options);

}  // namespace oometer
