#pragma once

#include <memory>

#include "models/aya_vision/config.h"
#include "models/model.h"

namespace oometer {

/// AyaVisionForConditionalGeneration and Cohere2VisionForConditionalGeneration (transformers 5.23,
/// models/aya_vision/modeling_aya_vision.py, models/cohere2_vision/modeling_cohere2_vision.py).
std::unique_ptr<Model> build_aya_vision(Context& context, const AyaVisionConfig& config, const DataConfig& data,
                                        const ModelOptions& options);

}  // namespace oometer
