#pragma once

#include <cstdint>

#include "models/clip/config.h"
#include "models/kit/text_config.h"

namespace oometer {

class ConfigReader;

/// transformers 5.23, models/paddleocr_vl/configuration_paddleocr_vl.py, class PaddleOCRVLConfig.
struct PaddleOcrVlConfig {
  ClipVisionConfig vision;  ///< PaddleOCRVisionConfig has SigLIP's fields
  std::int64_t spatial_merge_size = 2;
  TextConfig text;
  bool tie_word_embeddings = true;

  std::int64_t merge_unit() const { return spatial_merge_size * spatial_merge_size; }
  /// Of the patches of a token, side by side.
  std::int64_t merged_size() const { return vision.hidden_size * merge_unit(); }
  /// Learned positions, along a side.
  std::int64_t side() const { return vision.image_size / vision.patch_size; }

  bool operator==(const PaddleOcrVlConfig&) const = default;
};

PaddleOcrVlConfig read_paddleocr_vl_config(ConfigReader& reader);

}  // namespace oometer
