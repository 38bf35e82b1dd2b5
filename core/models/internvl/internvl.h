#pragma once

#include <memory>

#include "models/internvl/config.h"
#include "models/model.h"

namespace oometer {

/// InternVLForConditionalGeneration of transformers 5.23 (models/internvl/modeling_internvl.py).
std::unique_ptr<Model> build_internvl(Context& context, const InternVLConfig& config, const DataConfig& data,
                                      const ModelOptions& options);

}  // namespace oometer
