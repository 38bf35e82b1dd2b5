#pragma once

#include <memory>

#include "models/minicpmv4_6/config.h"
#include "models/model.h"

namespace oometer {

/// MiniCPMV4_6ForConditionalGeneration and its copies (transformers 5.23, models/minicpmv4_6/modeling_minicpmv4_6.py).
std::unique_ptr<Model> build_minicpm_v(Context& context, const MiniCpmVConfig& config, const DataConfig& data,
                                       const ModelOptions& options);

}  // namespace oometer
