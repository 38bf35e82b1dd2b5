#pragma once

#include <cstdint>
#include <utility>

#include "config/activation.h"
#include "models/deepseek/config.h"

namespace oometer {

/// transformers 5.23, models/kimi_k25/configuration_kimi_k25.py, class Kimi_K25VisionConfig: the fields that decide
/// memory.
struct KimiK25VisionConfig {
  std::int64_t patch_size = 14;    ///< pixels
  std::int64_t pos_emb_side = 64;  ///< patches: of the square of learned positions
  std::int64_t pos_emb_time = 4;   ///< frames
  std::int64_t num_attention_heads = 16;
  std::int64_t num_hidden_layers = 27;
  std::int64_t hidden_size = 1152;
  std::int64_t intermediate_size = 4304;
  Activation hidden_act = Activation::gelu_tanh;
  std::int64_t merge_size = 2;  ///< merge_kernel_size, of a square

  std::int64_t merge_unit() const { return merge_size * merge_size; }
  bool operator==(const KimiK25VisionConfig&) const = default;
};

/// class Kimi_K25Config: a tower over DeepSeek-V3.
struct KimiK25Config {
  KimiK25VisionConfig vision;
  DeepseekConfig text;
  bool tie_word_embeddings = true;

  std::int64_t merged_size() const { return vision.hidden_size * vision.merge_unit(); }
  bool operator==(const KimiK25Config&) const = default;
};

KimiK25Config read_kimi_k25_config(ConfigReader& reader);

/// Rows and columns of patches that Kimi_K25ImageProcessor makes of an image of so many pixels (navit_resize,
/// models/kimi_k25/image_processing_kimi_k25.py, with its own max_patches and size).
std::pair<std::int64_t, std::int64_t> kimi_k25_patches(std::int64_t height, std::int64_t width,
                                                       const KimiK25VisionConfig& config);

}  // namespace oometer
