#pragma once

#include "models/dinov2/dinov2.h"
#include "models/kit/dpt_neck.h"

/// transformers 5.23, models/depth_anything/modeling_depth_anything.py. Names and order of steps are that file's.
namespace oometer {

inline constexpr DptNeckNames kDepthAnythingNeck{"DepthAnythingNeck",
                                                 "DepthAnythingReassembleStage",
                                                 "DepthAnythingReassembleLayer",
                                                 "DepthAnythingFeatureFusionStage",
                                                 "DepthAnythingFeatureFusionLayer",
                                                 "DepthAnythingPreActResidualLayer"};

/// class DepthAnythingConfig (models/depth_anything/configuration_depth_anything.py), with DINOv2 in front.
struct DepthAnythingConfig {
  const char* class_name = "";
  Dinov2BackboneConfig backbone;
  DptNeckConfig neck;
  std::int64_t patch_size = 14, head_in_index = -1, head_hidden_size = 32;
  bool is_metric = false;  ///< depth_estimation_type

  std::size_t head_index() const {
    return static_cast<std::size_t>(head_in_index < 0 ? head_in_index + static_cast<std::int64_t>(neck.stages())
                                                      : head_in_index);
  }
  bool operator==(const DepthAnythingConfig&) const = default;
};

std::unique_ptr<Model> build_depth_anything(Context& context, const DepthAnythingConfig& config, const DataConfig& data,
                                            const ModelOptions& options);

}  // namespace oometer
