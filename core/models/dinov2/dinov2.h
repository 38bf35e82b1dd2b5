#pragma once

#include "models/vit/vit.h"

/// transformers 5.23, models/dinov2/modeling_dinov2.py. Names and order of steps are that file's.
namespace oometer {

inline constexpr VitClassNames kDinov2{
    "Dinov2Model", "Dinov2Embeddings", "Dinov2PatchEmbeddings", "Dinov2Layer", "Dinov2Attention", "Dinov2MLP", "dinov2",
    false};
/// models/dinov2_with_registers/modeling_dinov2_with_registers.py
inline constexpr VitClassNames kDinov2WithRegisters{"Dinov2WithRegistersModel",
                                                    "Dinov2WithRegistersEmbeddings",
                                                    "Dinov2WithRegistersPatchEmbeddings",
                                                    "Dinov2WithRegistersLayer",
                                                    "Dinov2WithRegistersAttention",
                                                    "Dinov2WithRegistersMLP",
                                                    "dinov2_with_registers",
                                                    false};

std::unique_ptr<Model> build_dinov2(Context& context, const VitConfig& config, const DataConfig& data,
                                    const ModelOptions& options);

}  // namespace oometer
