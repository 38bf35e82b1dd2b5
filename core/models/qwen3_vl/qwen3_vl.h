#pragma once

#include <memory>

#include "models/kit/grids.h"
#include "models/model.h"
#include "models/qwen3_vl/config.h"

namespace oometer {

/// Qwen3VLVisionModel and its kin, of the config's class and `vision`.
std::unique_ptr<GridTower> make_qwen3_vision(const Builder& builder, const Qwen3VLConfig& config,
                                             const ModelOptions& options);
/// Qwen3VLForConditionalGeneration and Qwen3VLMoeForConditionalGeneration of transformers 5.23
/// (models/qwen3_vl/modeling_qwen3_vl.py, models/qwen3_vl_moe/modeling_qwen3_vl_moe.py), and Qwen3.5's.
std::unique_ptr<Model> build_qwen3_vl(Context& context, const Qwen3VLConfig& config, const DataConfig& data,
                                      const ModelOptions& options);

}  // namespace oometer
