#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "models/kit/qformer.h"
#include "models/kit/text_config.h"
#include "models/llava/config.h"
#include "models/model.h"

namespace oometer {

/// transformers 5.23, models/granite4_vision/configuration_granite4_vision.py, class Granite4VisionConfig.
struct Granite4VisionConfig {
  /// LLaVA-NeXT's part: the tower, and how images are cut into its tiles. Its features are those that the projectors
  /// leave, so that patch_size is that of as many patches.
  LlavaConfig tiles;
  ClipVisionConfig vision;
  TextConfig text;
  QFormerConfig qformer;
  std::int64_t query_side = 0, window_side = 0;  ///< downsample_rate
  double projector_dropout = 0.1;
  /// Which of the tower's states go where: indices into [embeddings, layer 1, ..., layer N], and layers of the text.
  std::vector<std::pair<std::int64_t, std::int64_t>> deepstack_layer_map;
  std::int64_t spatial_vision_layer = 0;
  std::vector<std::int64_t> spatial_target_layers;
  bool tie_word_embeddings = false;

  std::int64_t image_side() const { return vision.image_size / vision.patch_size; }
  std::int64_t windows_of_side() const { return image_side() / window_side; }

  bool operator==(const Granite4VisionConfig&) const = default;
};

/// Granite4VisionForConditionalGeneration (models/granite4_vision/modeling_granite4_vision.py).
std::unique_ptr<Model> build_granite4_vision(Context& context, const Granite4VisionConfig& config,
                                             const DataConfig& data, const ModelOptions& options);

}  // namespace oometer
