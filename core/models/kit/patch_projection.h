#pragma once

#include "nn/checkpointing.h"
#include "nn/module.h"

namespace oometer {

/// Patches by an nn.Linear, whose result wants gradients where adapters stand beside checkpoints. Where the hook of
/// enable_input_require_grads() (transformers 5.23, modeling_utils.py) is older than an adapter around that layer, it
/// sees the base layer's result.
Tensor project_patches(const Linear& projection, const Tensor& x, const CheckpointingConfig& checkpointing);

}  // namespace oometer
