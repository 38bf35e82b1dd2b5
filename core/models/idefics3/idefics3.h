#pragma once

#include "models/idefics3/config.h"
#include "models/model.h"

namespace oometer {

/// Idefics2ForConditionalGeneration, Idefics3ForConditionalGeneration and SmolVLMForConditionalGeneration (transformers
/// 5.23, models/idefics2/modeling_idefics2.py, models/idefics3/modeling_idefics3.py,
/// models/smolvlm/modeling_smolvlm.py).
std::unique_ptr<Model> build_idefics3(Context& context, const Idefics3Config& config, const DataConfig& data,
                                      const ModelOptions& options);

}  // namespace oometer
