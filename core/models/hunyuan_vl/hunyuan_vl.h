#pragma once

#include <cstdint>
#include <memory>

#include "models/clip/config.h"
#include "models/kit/text_config.h"
#include "models/model.h"

/// transformers 5.23, models/hunyuan_vl/modeling_hunyuan_vl.py. Names and order of steps are that file's.
namespace oometer {

/// class HunYuanVLConfig (models/hunyuan_vl/configuration_hunyuan_vl.py).
struct HunyuanVlConfig {
  ClipVisionConfig vision;  ///< image_size: max_image_size, of which positions are learned
  std::int64_t spatial_merge_size = 2;
  TextConfig text;
  std::int64_t axes = 0;  ///< of mrope_section
  bool tie_word_embeddings = true;

  /// Learned positions, along a side.
  std::int64_t side() const { return vision.image_size / vision.patch_size; }
  /// A row of tokens ends with one of its own, the image begins and ends with one.
  std::int64_t tokens(const ImageShape& image) const {
    return image.grid_h / spatial_merge_size * (image.grid_w / spatial_merge_size + 1) + 2;
  }
  bool operator==(const HunyuanVlConfig&) const = default;
};

/// HunYuanVLForConditionalGeneration.
std::unique_ptr<Model> build_hunyuan_vl(Context& context, const HunyuanVlConfig& config, const DataConfig& data,
                                        const ModelOptions& options);

}  // namespace oometer
