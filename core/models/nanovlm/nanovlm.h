#pragma once

#include <memory>

#include "models/model.h"
#include "models/nanovlm/config.h"

namespace oometer {

/// VisionLanguageModel of huggingface/nanoVLM at 91a3b93 (models/vision_language_model.py), of full samples: without
/// the collator's attention_mask, which torch 2.15 refuses beside is_causal.
std::unique_ptr<Model> build_nanovlm(Context& context, const NanoVlmConfig& config, const DataConfig& data,
                                     const ModelOptions& options);

}  // namespace oometer
