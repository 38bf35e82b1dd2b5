#pragma once

#include <memory>

#include "models/llava/config.h"
#include "models/model.h"

namespace oometer {

/// VideoLlavaForConditionalGeneration of transformers 5.23 (models/video_llava/modeling_video_llava.py), with images:
/// LLaVA's config and parts, and beside its tower a second one for videos.
std::unique_ptr<Model> build_video_llava(Context& context, const LlavaConfig& config, const DataConfig& data,
                                         const ModelOptions& options);

}  // namespace oometer
