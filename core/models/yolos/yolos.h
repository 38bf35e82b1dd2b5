#pragma once

#include "models/vit/vit.h"

/// transformers 5.23, models/yolos/modeling_yolos.py. Names and order of steps are that file's.
namespace oometer {

inline constexpr VitClassNames kYolos{
    "YolosModel", "YolosEmbeddings", "YolosPatchEmbeddings", "YolosLayer", "YolosAttention", "YolosIntermediate", "vit",
    false};

/// class YolosConfig (models/yolos/configuration_yolos.py)
struct YolosConfig : VitConfig {
  bool detects = false;  ///< ForObjectDetection
  std::int64_t image_height = 512, image_width = 864, num_detection_tokens = 100;
  bool use_mid_position_embeddings = true;

  std::int64_t num_patches() const { return patches(image_height, image_width); }
  bool operator==(const YolosConfig&) const = default;
};

std::unique_ptr<Model> build_yolos(Context& context, const YolosConfig& config, const DataConfig& data,
                                   const ModelOptions& options);

}  // namespace oometer
