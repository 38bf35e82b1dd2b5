#pragma once

#include <cstdint>
#include <optional>
#include <utility>

#include "models/gemma4_text/config.h"

namespace oometer {

/// transformers 5.23, models/gemma4/configuration_gemma4.py, class Gemma4VisionConfig: the fields that decide memory.
struct Gemma4VisionConfig {
  std::int64_t hidden_size = 768;
  std::int64_t intermediate_size = 3072;
  std::int64_t num_hidden_layers = 16;
  std::int64_t num_attention_heads = 12;
  std::int64_t num_key_value_heads = 12;
  std::int64_t head_dim = 64;
  std::int64_t pooling_kernel_size = 3;  ///< patches along each side of what becomes a token
  std::int64_t patch_size = 16;          ///< pixels
  std::int64_t position_embedding_size = 10 * 1024;
  Activation hidden_act = Activation::gelu_tanh;
  double attention_dropout = 0;
  bool use_clipped_linears = false;
  bool standardize = false;

  std::int64_t patch_elements() const { return 3 * patch_size * patch_size; }
  std::int64_t patches_per_token() const { return pooling_kernel_size * pooling_kernel_size; }

  bool operator==(const Gemma4VisionConfig&) const = default;
};

/// class Gemma4AudioConfig: what decides its parameters.
struct Gemma4AudioConfig {
  std::int64_t hidden_size = 1024;
  std::int64_t num_hidden_layers = 12;
  std::int64_t num_attention_heads = 8;
  std::pair<std::int64_t, std::int64_t> subsampling_conv_channels{128, 32};
  std::int64_t conv_kernel_size = 5;
  std::int64_t output_proj_dims = 1536;
  bool use_clipped_linears = true;

  bool operator==(const Gemma4AudioConfig&) const = default;
};

/// transformers 5.23, models/gemma4_unified/configuration_gemma4_unified.py, class Gemma4UnifiedVisionConfig: patches
/// go right into the language model.
struct Gemma4UnifiedVisionConfig {
  std::int64_t patch_size = 16;          ///< pixels
  std::int64_t pooling_kernel_size = 3;  ///< patches along each side of what becomes a token
  std::int64_t mm_embed_dim = 3840;
  std::int64_t mm_posemb_size = 1120;

  std::int64_t patch_elements() const {
    return 3 * patch_size * pooling_kernel_size * patch_size * pooling_kernel_size;
  }

  bool operator==(const Gemma4UnifiedVisionConfig&) const = default;
};

/// class Gemma4Config, and Gemma4UnifiedConfig.
struct Gemma4Config {
  Gemma4TextConfig text;
  std::optional<Gemma4VisionConfig> vision;
  std::optional<Gemma4AudioConfig> audio;
  bool is_unified = false;  ///< it has these two in place of those two
  std::optional<Gemma4UnifiedVisionConfig> unified_vision;
  std::optional<std::int64_t> audio_embed_dim;  ///< samples of sound that are a token
  bool tie_word_embeddings = true;
  bool sees_blocks = false;            ///< use_bidirectional_attention "vision": an image's tokens see each other
  std::int64_t max_soft_tokens = 280;  ///< of an image, of Gemma4ImageProcessor

  std::int64_t patch_size() const { return is_unified ? unified_vision->patch_size : vision->patch_size; }
  std::int64_t pooling_kernel_size() const {
    return is_unified ? unified_vision->pooling_kernel_size : vision->pooling_kernel_size;
  }
  std::int64_t patches_per_token() const { return pooling_kernel_size() * pooling_kernel_size(); }
  /// To so many rows of `pixel_elements` each image is padded.
  std::int64_t pixel_rows() const { return is_unified ? max_soft_tokens : max_soft_tokens * patches_per_token(); }
  std::int64_t pixel_elements() const {
    return is_unified ? unified_vision->patch_elements() : vision->patch_elements();
  }

  bool operator==(const Gemma4Config&) const = default;
};

Gemma4Config read_gemma4_config(ConfigReader& reader);
Gemma4Config read_gemma4_unified_config(ConfigReader& reader);

/// Rows and columns of patches that Gemma4ImageProcessor makes of an image of so many pixels
/// (models/gemma4/image_processing_gemma4.py, get_aspect_ratio_preserving_size); none: it refuses it.
std::optional<std::pair<std::int64_t, std::int64_t>> gemma4_patches(std::int64_t height, std::int64_t width,
                                                                    const Gemma4Config& config);

}  // namespace oometer
