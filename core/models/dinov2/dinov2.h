#pragma once

#include "models/vit/vit.h"

/// transformers 5.23, models/dinov2/modeling_dinov2.py. Names and order of steps are that file's.
namespace oometer {

inline constexpr VitClassNames kDinov2{
    "Dinov2Model", "Dinov2Embeddings", "Dinov2PatchEmbeddings", "Dinov2Layer", "Dinov2Attention", "Dinov2MLP", "dinov2",
    false};

std::unique_ptr<Model> build_dinov2(Context& context, const VitConfig& config, const DataConfig& data,
                                    const ModelOptions& options);

}  // namespace oometer
