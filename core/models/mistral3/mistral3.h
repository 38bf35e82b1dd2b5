#pragma once

#include <memory>

#include "models/mistral3/config.h"
#include "models/model.h"

namespace oometer {

/// Mistral3ForConditionalGeneration of transformers 5.23 (models/mistral3/modeling_mistral3.py).
std::unique_ptr<Model> build_mistral3(Context& context, const Mistral3Config& config, const DataConfig& data,
                                      const ModelOptions& options);

}  // namespace oometer
