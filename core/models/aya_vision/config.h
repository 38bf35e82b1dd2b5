#pragma once

#include <cstdint>

#include "models/clip/config.h"
#include "models/kit/text_config.h"

namespace oometer {

/// What a class is called, and what it does otherwise: Aya Vision normalises what it projects, and takes the hidden
/// states of any of the tower's layers.
struct AyaVisionClass {
  const char *model_type, *class_name, *model, *projector;
  bool is_aya;
};
inline constexpr AyaVisionClass kAyaVision{"aya_vision", "AyaVisionForConditionalGeneration", "AyaVisionModel",
                                           "AyaVisionMultiModalProjector", true},
    kCohere2Vision{"cohere2_vision", "Cohere2VisionForConditionalGeneration", "Cohere2VisionModel",
                   "Cohere2VisionMultiModalProjector", false};

/// transformers 5.23, models/aya_vision/configuration_aya_vision.py, class AyaVisionConfig, and
/// models/cohere2_vision/configuration_cohere2_vision.py, class Cohere2VisionConfig: the fields that decide memory.
struct AyaVisionConfig {
  const AyaVisionClass* of = &kAyaVision;
  ClipVisionConfig vision;  ///< SigLIP's
  TextConfig text;          ///< Cohere2's
  std::int64_t downsample_factor = 2;
  std::int64_t alignment_intermediate_size = 0;
  std::int64_t vision_feature_layer = 0;  ///< of [embeddings, layer 1, ..., layer N]
  bool tie_word_embeddings = true;

  /// Along a tile's side.
  std::int64_t patches_per_side() const { return vision.image_size / vision.patch_size; }
  /// Tokens of the language model that one tile takes.
  std::int64_t tokens_per_tile() const {
    const std::int64_t side = patches_per_side() / downsample_factor;
    return side * side;
  }
  /// Elements of what is projected.
  std::int64_t wide() const { return vision.hidden_size * downsample_factor * downsample_factor; }
  /// Tiles of an image, the whole image scaled down among them: get_optimal_tiled_canvas of one to twelve tiles, by
  /// GotOcr2ImageProcessor's rule (Aya Vision: the nearest shape) or by Cohere2VisionImageProcessor's (the least that
  /// has to be scaled up).
  std::int64_t tiles(std::int64_t height, std::int64_t width) const;

  bool operator==(const AyaVisionConfig&) const = default;
};

AyaVisionConfig read_aya_vision_config(ConfigReader& reader, const AyaVisionClass& of);

}  // namespace oometer
