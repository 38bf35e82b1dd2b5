#pragma once

#include <memory>

#include "models/llama4/config.h"
#include "models/model.h"

namespace oometer {

/// Llama4ForConditionalGeneration of transformers 5.23 (models/llama4/modeling_llama4.py).
std::unique_ptr<Model> build_llama4(Context& context, const Llama4ImageConfig& config, const DataConfig& data,
                                    const ModelOptions& options);

}  // namespace oometer
