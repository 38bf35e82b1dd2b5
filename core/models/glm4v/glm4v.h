#pragma once

#include <memory>

#include "models/glm4v/config.h"
#include "models/kit/decoder.h"
#include "models/model.h"

namespace oometer {

/// Glm4vForConditionalGeneration and Glm46VForConditionalGeneration (transformers 5.23, models/glm4v/modeling_glm4v.py,
/// models/glm46v/modeling_glm46v.py).
std::unique_ptr<Model> build_glm4v(Context& context, const Glm4vConfig& config, const DataConfig& data,
                                   const ModelOptions& options);
/// What Glm4vTextModel has of its own.
DecoderParts glm4v_text_parts(const TextConfig& config, const ModelOptions& options);

}  // namespace oometer
