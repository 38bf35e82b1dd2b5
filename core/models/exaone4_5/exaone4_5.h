#pragma once

#include <memory>

#include "models/exaone4_5/config.h"
#include "models/model.h"

namespace oometer {

/// Exaone4_5_ForConditionalGeneration of transformers 5.23 (models/exaone4_5/modeling_exaone4_5.py).
std::unique_ptr<Model> build_exaone4_5(Context& context, const Exaone45Config& config, const DataConfig& data,
                                       const ModelOptions& options);

}  // namespace oometer
