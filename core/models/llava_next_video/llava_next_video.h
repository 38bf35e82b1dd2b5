#pragma once

#include <cstdint>
#include <memory>

#include "models/llava/config.h"
#include "models/model.h"

namespace oometer {

inline constexpr LlavaClass kLlavaOnevision{"llava_onevision", "LlavaOnevisionForConditionalGeneration",
                                            "LlavaOnevisionModel", "LlavaOnevisionMultiModalProjector"},
    kLlavaNextVideo{"llava_next_video", "LlavaNextVideoForConditionalGeneration", "LlavaNextVideoModel",
                    "LlavaNextVideoMultiModalProjector"};

/// LLaVA-NeXT's classes that see videos, too. transformers 5.23, models/llava_next_video and models/llava_onevision.
struct LlavaVideoConfig : LlavaConfig {
  // Of LlavaNextVideoPooler; LLaVA-OneVision halves the sides of a frame's features.
  std::int64_t spatial_pool_stride = 2;
  bool takes_maximum = false;  ///< spatial_pool_mode "max"

  std::int64_t patches_of_side() const { return vision.image_size / vision.patch_size; }
  /// Of a frame's features, once they are pooled.
  std::int64_t pooled_side() const {
    return is_onevision() ? (patches_of_side() + 1) / 2 : patches_of_side() / spatial_pool_stride;
  }
  std::int64_t tokens_per_video(std::int64_t frames) const {
    return checked_product(frames, pooled_side() * pooled_side()) + (is_onevision() ? 1 : 0);  // its newline
  }

  bool operator==(const LlavaVideoConfig&) const = default;
};

/// LlavaNextVideoForConditionalGeneration or LlavaOnevisionForConditionalGeneration. A job's images are videos where
/// DataConfig::grid_t has their frames.
std::unique_ptr<Model> build_llava_video(Context& context, const LlavaVideoConfig& config, const DataConfig& data,
                                         const ModelOptions& options);

}  // namespace oometer
