#pragma once

#include <memory>

#include "models/model.h"
#include "models/vision_language.h"

namespace oometer {

/// DeepseekVLForConditionalGeneration (transformers 5.23, models/deepseek_vl/modeling_deepseek_vl.py).
std::unique_ptr<Model> build_deepseek_vl(Context& context, const VisionLanguageConfig& config, const DataConfig& data,
                                         const ModelOptions& options);

}  // namespace oometer
