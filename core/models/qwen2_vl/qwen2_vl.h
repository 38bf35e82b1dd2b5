#pragma once

#include <memory>

#include "models/kit/grids.h"
#include "models/model.h"
#include "models/qwen2_vl/config.h"

namespace oometer {

/// Qwen2_5_VisionTransformerPretrainedModel, Qwen2VisionTransformerPretrainedModel and Qwen2_5OmniVisionEncoder, of
/// the config's names and `vision`.
std::unique_ptr<GridTower> make_qwen_vision(const Builder& builder, const QwenVLConfig& config,
                                            const ModelOptions& options);
/// Qwen2_5_VLForConditionalGeneration and Qwen2VLForConditionalGeneration of transformers 5.23
/// (models/qwen2_5_vl/modeling_qwen2_5_vl.py, models/qwen2_vl/modeling_qwen2_vl.py).
std::unique_ptr<Model> build_qwen_vl(Context& context, const QwenVLConfig& config, const DataConfig& data,
                                     const ModelOptions& options);

}  // namespace oometer
