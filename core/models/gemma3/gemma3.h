#pragma once

#include <memory>

#include "models/gemma3/config.h"
#include "models/model.h"

namespace oometer {

/// Gemma3ForConditionalGeneration of transformers 5.23 (models/gemma3/modeling_gemma3.py).
std::unique_ptr<Model> build_gemma3(Context& context, const Gemma3Config& config, const DataConfig& data,
                                    const ModelOptions& options);

}  // namespace oometer
