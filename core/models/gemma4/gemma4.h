#pragma once

#include <memory>

#include "models/gemma4/config.h"
#include "models/model.h"

/// transformers 5.23, models/gemma4/modeling_gemma4.py.
namespace oometer {

std::unique_ptr<Model> build_gemma4(Context& context, const Gemma4Config& config, const DataConfig& data,
                                    const ModelOptions& options);

}  // namespace oometer
