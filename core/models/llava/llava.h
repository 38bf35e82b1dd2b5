#pragma once

#include <memory>

#include "models/llava/config.h"
#include "models/model.h"

namespace oometer {

/// LlavaForConditionalGeneration of transformers 5.23 (models/llava/modeling_llava.py), or what Behaviours says of
/// others.
std::unique_ptr<Model> build_llava(Context& context, const LlavaConfig& config, const DataConfig& data,
                                   const ModelOptions& options);

/// LlavaLlamaForCausalLM of the original code (haotian-liu/LLaVA v1.2.2).
std::unique_ptr<Model> build_original_llava(Context& context, const LlavaConfig& config, const DataConfig& data,
                                            const ModelOptions& options);

}  // namespace oometer
