#pragma once

#include <cstdint>

#include "models/llama4_text/llama4_text.h"

namespace oometer {

inline constexpr const char* kLlama4 = "Llama4ForConditionalGeneration";
inline constexpr const char* kLlama4VisionLayer = "Llama4VisionEncoderLayer";

/// transformers 5.23, models/llama4/configuration_llama4.py, class Llama4VisionConfig: the fields that decide memory.
struct Llama4VisionConfig {
  std::int64_t hidden_size = 768;
  std::int64_t num_hidden_layers = 34;
  std::int64_t num_attention_heads = 16;
  std::int64_t num_channels = 3;
  std::int64_t intermediate_size = 5632;  ///< of the layers, and of what the adapter is given
  std::int64_t vision_output_dim = 7680;
  std::int64_t image_size = 448;  ///< pixels of a tile's side
  std::int64_t patch_size = 14;
  std::int64_t projector_input_dim = 4096;
  std::int64_t projector_output_dim = 4096;
  double pixel_shuffle_ratio = 0.5;
  double projector_dropout = 0, attention_dropout = 0;

  std::int64_t head_dim() const { return hidden_size / num_attention_heads; }
  std::int64_t patches_per_side() const { return image_size / patch_size; }
  /// With the class token.
  std::int64_t num_positions() const { return patches_per_side() * patches_per_side() + 1; }
  std::int64_t patch_elements() const { return num_channels * patch_size * patch_size; }
  bool operator==(const Llama4VisionConfig&) const = default;
};

/// class Llama4Config.
struct Llama4ImageConfig {
  Llama4VisionConfig vision;
  Llama4Config text;

  /// Along a tile's side, as pixel_shuffle leaves them.
  std::int64_t tokens_per_side() const;
  std::int64_t tokens_per_tile() const { return tokens_per_side() * tokens_per_side(); }
  /// Tiles of an image, the whole image scaled down among them (get_best_fit of one to sixteen tiles,
  /// models/llama4/image_processing_llama4.py).
  std::int64_t tiles(std::int64_t height, std::int64_t width) const;

  bool operator==(const Llama4ImageConfig&) const = default;
};

Llama4ImageConfig read_llama4_config(ConfigReader& reader);

}  // namespace oometer
