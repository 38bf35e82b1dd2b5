#pragma once

#include "tensor/context.h"
#include "tensor/tensor.h"
#include "train/config.h"

namespace oometer {

/// enable_input_require_grads (transformers 5.23, modeling_utils.py): checkpointing makes what the input embeddings
/// give want gradients, so that they reach trained weights behind frozen ones. A hook of `module`, older than those of
/// Context::modules.
inline void require_input_grad(const CheckpointingConfig& checkpointing, Tensor& embeddings, ModuleId module) {
  if (checkpointing.mode == CheckpointMode::none) return;
  if (!embeddings.context().behaviours.checkpointing_requires_input_grads && !checkpointing.input_require_grads) return;
  if (embeddings.requires_grad()) return;
  embeddings->leaf_requires_grad = true;
  if (embeddings.context().modules) embeddings = hook_gradient(embeddings, module, true);
}

}  // namespace oometer
