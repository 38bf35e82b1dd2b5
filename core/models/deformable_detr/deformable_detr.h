#pragma once

#include "models/detr/detr.h"

/// transformers 5.23, models/deformable_detr/modeling_deformable_detr.py. Names and order of steps are that file's.
namespace oometer {

inline constexpr DetrClassNames kDeformableDetr{"DeformableDetrModel",
                                                "DeformableDetrConvEncoder",
                                                "DeformableDetrFrozenBatchNorm2d",
                                                "DeformableDetrSinePositionEmbedding",
                                                "DeformableDetrEncoder",
                                                "DeformableDetrEncoderLayer",
                                                "DeformableDetrDecoder",
                                                "DeformableDetrDecoderLayer",
                                                "DeformableDetrSelfAttention",
                                                "DeformableDetrMLP",
                                                "DeformableDetrMLPPredictionHead"};

/// class DeformableDetrConfig, without boxes that the layers refine.
struct DeformableDetrConfig : DetrConfig {
  std::int64_t num_feature_levels = 4, encoder_n_points = 4, decoder_n_points = 4;
  bool operator==(const DeformableDetrConfig&) const = default;
};

std::unique_ptr<Model> build_deformable_detr(Context& context, const DeformableDetrConfig& config,
                                             const DataConfig& data, const ModelOptions& options);

}  // namespace oometer
