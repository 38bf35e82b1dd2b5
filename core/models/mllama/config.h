#pragma once

#include <cstdint>
#include <vector>

#include "config/activation.h"
#include "models/llama/config.h"

namespace oometer {

class ConfigReader;

/// transformers 5.23, models/mllama/configuration_mllama.py, class MllamaVisionConfig: the fields that decide memory.
struct MllamaVisionConfig {
  std::int64_t hidden_size = 1280;
  std::int64_t intermediate_size = 5120;
  std::int64_t num_hidden_layers = 32;
  std::int64_t num_global_layers = 8;  ///< of the second, gated encoder
  std::int64_t attention_heads = 16;
  std::int64_t num_channels = 3;
  std::int64_t image_size = 448;  ///< pixels of a tile's side
  std::int64_t patch_size = 14;
  std::int64_t max_num_tiles = 4;  ///< of an image, which is padded to as many
  std::int64_t max_aspect_ratio_id = 8;
  std::vector<std::int64_t> intermediate_layers_indices{3, 7, 15, 23, 30};
  Activation hidden_act = Activation::gelu;

  /// Of a tile, with the class token.
  std::int64_t num_patches() const { return image_size / patch_size * (image_size / patch_size) + 1; }
  /// The same, as many as the encoders get.
  std::int64_t padded_patches() const { return (num_patches() + 7) / 8 * 8; }
  /// Elements of a patch that the language model sees: the last layer's and those of some before.
  std::int64_t output_dim() const {
    return hidden_size * (1 + static_cast<std::int64_t>(intermediate_layers_indices.size()));
  }

  bool operator==(const MllamaVisionConfig&) const = default;
};

/// class MllamaConfig.
struct MllamaConfig {
  MllamaVisionConfig vision;
  LlamaConfig text;                       ///< MllamaTextConfig
  std::vector<bool> has_cross_attention;  ///< by layer: in the place of self-attention (cross_attention_layers)

  bool operator==(const MllamaConfig&) const = default;
};

MllamaConfig read_mllama_config(ConfigReader& reader);

}  // namespace oometer
