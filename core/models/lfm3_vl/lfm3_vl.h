#pragma once

#include <memory>

#include "models/lfm3_vl/config.h"
#include "models/model.h"

namespace oometer {

/// Lfm3VlForConditionalGeneration of transformers 5.23 (models/lfm3_vl/modeling_lfm3_vl.py).
std::unique_ptr<Model> build_lfm3_vl(Context& context, const Lfm3VlConfig& config, const DataConfig& data,
                                     const ModelOptions& options);

}  // namespace oometer
