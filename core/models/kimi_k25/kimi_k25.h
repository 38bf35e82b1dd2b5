#pragma once

#include <memory>

#include "models/kimi_k25/config.h"
#include "models/model.h"

/// transformers 5.23, models/kimi_k25/modeling_kimi_k25.py.
namespace oometer {

inline constexpr const char* kKimiK25 = "Kimi_K25ForConditionalGeneration";
inline constexpr const char* kKimiK25VisionLayer = "Kimi_K25VisionEncoderLayer";

std::unique_ptr<Model> build_kimi_k25(Context& context, const KimiK25Config& config, const DataConfig& data,
                                      const ModelOptions& options);

}  // namespace oometer
