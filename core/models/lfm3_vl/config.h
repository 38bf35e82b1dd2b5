#pragma once

#include <cstdint>
#include <vector>

#include "config/activation.h"
#include "models/lfm3/lfm3.h"

namespace oometer {

inline constexpr const char* kLfm3Vl = "Lfm3VlForConditionalGeneration";
inline constexpr const char* kLfm3VlVisionLayer = "Lfm3VlVisionLayer";

/// transformers 5.23, models/lfm3_vl/configuration_lfm3_vl.py, class Lfm3VlVisionConfig: the fields that decide memory.
struct Lfm3VlVisionConfig {
  std::int64_t hidden_size = 1024;
  std::int64_t intermediate_size = 2560;
  std::int64_t in_channels = 3;
  std::int64_t patch_size = 16;  ///< pixels
  std::int64_t spatial_merge_size = 2;
  std::int64_t temporal_patch_size = 2;  ///< frames
  std::int64_t num_hidden_layers = 14;
  std::int64_t num_attention_heads = 16;
  std::int64_t num_key_value_heads = 8;
  std::int64_t conv_kernel_size = 3;
  std::vector<bool> attends;  ///< by layer; the others convolve

  std::int64_t merge_unit() const { return spatial_merge_size * spatial_merge_size; }
  /// Elements of a patch.
  std::int64_t patch_elements() const { return in_channels * temporal_patch_size * patch_size * patch_size; }
  bool operator==(const Lfm3VlVisionConfig&) const = default;
};

/// class Lfm3VlConfig.
struct Lfm3VlConfig {
  Lfm3VlVisionConfig vision;
  Lfm3Config text;
  std::int64_t projector_hidden_size = 4096;
  Activation projector_hidden_act = Activation::gelu;
  bool projector_bias = true;
  bool tie_word_embeddings = true;

  std::int64_t merged_size() const { return vision.hidden_size * vision.merge_unit(); }
  bool operator==(const Lfm3VlConfig&) const = default;
};

Lfm3VlConfig read_lfm3_vl_config(ConfigReader& reader);

}  // namespace oometer
