#pragma once

#include "models/detr/detr.h"

/// transformers 5.23, models/conditional_detr/modeling_conditional_detr.py. Names and order of steps are that file's.
namespace oometer {

inline constexpr DetrClassNames kConditionalDetr{"ConditionalDetrModel",
                                                 "ConditionalDetrConvEncoder",
                                                 "ConditionalDetrFrozenBatchNorm2d",
                                                 "ConditionalDetrSinePositionEmbedding",
                                                 "ConditionalDetrEncoder",
                                                 "ConditionalDetrEncoderLayer",
                                                 "ConditionalDetrDecoder",
                                                 "ConditionalDetrDecoderLayer",
                                                 "ConditionalDetrSelfAttention",
                                                 "ConditionalDetrMLP",
                                                 "ConditionalDetrMLPPredictionHead"};

std::unique_ptr<Model> build_conditional_detr(Context& context, const DetrConfig& config, const DataConfig& data,
                                              const ModelOptions& options);

}  // namespace oometer
