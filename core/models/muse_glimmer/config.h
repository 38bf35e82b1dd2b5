#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "models/kit/text_config.h"

namespace oometer {

class ConfigReader;

/// transformers 5.23, models/muse_glimmer/configuration_muse_glimmer.py, class MuseGlimmerVisionConfig: the fields that
/// decide memory.
struct MuseGlimmerVisionConfig {
  std::int64_t patch_size = 14;      ///< pixels
  std::int64_t pos_emb_height = 32;  ///< patches: a side of the square of learned positions, and of a window
  std::int64_t num_attention_heads = 16;
  std::int64_t num_hidden_layers = 50;
  std::int64_t hidden_size = 1536;
  std::int64_t intermediate_size = 8960;
  std::int64_t patch_temporal = 2;  ///< frames
  std::int64_t merge_size = 2;
  Activation hidden_act = Activation::gelu;
  std::vector<bool> attends_fully{};  ///< by layer; the others attend within windows

  std::int64_t merge_unit() const { return merge_size * merge_size; }
  /// Elements of a patch.
  std::int64_t patch_elements() const { return patch_temporal * 3 * patch_size * patch_size; }

  bool operator==(const MuseGlimmerVisionConfig&) const = default;
};

/// class MuseGlimmerConfig; `text` is class MuseGlimmerTextConfig.
struct MuseGlimmerConfig {
  MuseGlimmerVisionConfig vision;
  TextConfig text;
  std::int64_t out_hidden_size = 6144;
  std::int64_t projector_hidden_size = 4096;
  Activation projector_hidden_act = Activation::gelu;
  bool tie_word_embeddings = false;

  bool operator==(const MuseGlimmerConfig&) const = default;
};

MuseGlimmerConfig read_muse_glimmer_config(ConfigReader& reader);
TextConfig read_muse_glimmer_text(ConfigReader& reader);

/// Rows and columns of tokens that MuseGlimmerImageProcessor makes of an image of so many pixels (smart_resize,
/// models/muse_glimmer/image_processing_muse_glimmer.py, with its max_image_tokens of 4096).
std::pair<std::int64_t, std::int64_t> muse_glimmer_tokens(std::int64_t height, std::int64_t width,
                                                          const MuseGlimmerVisionConfig& config);

}  // namespace oometer
