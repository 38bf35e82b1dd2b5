#pragma once

#include <memory>

#include "models/model.h"
#include "models/phi4_multimodal/config.h"

namespace oometer {

/// Phi4MultimodalForCausalLM (transformers 5.23, models/phi4_multimodal/modeling_phi4_multimodal.py).
std::unique_ptr<Model> build_phi4_multimodal(Context& context, const Phi4Config& config, const DataConfig& data,
                                             const ModelOptions& options);

}  // namespace oometer
