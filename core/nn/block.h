#pragma once

#include <utility>

#include "autograd/checkpoint.h"
#include "train/config.h"

namespace oometer {

/// One block of a stack (GradientCheckpointingLayer, transformers 5.23, modeling_layers.py): run as it is, or under
/// torch.utils.checkpoint. `forward` takes the hidden states; what else it needs it captures, as the partial does.
/// `nested`: see checkpoint().
template <class Forward>
Tensor run_block(const CheckpointingConfig& checkpointing, std::size_t index, const Tensor& hidden_states,
                 Forward&& forward, const TensorList& nested = {}) {
  if (checkpointing.mode == CheckpointMode::none || index % static_cast<std::size_t>(checkpointing.every) != 0)
    return forward(hidden_states);
  const Checkpointing mode =
      checkpointing.mode == CheckpointMode::reentrant ? Checkpointing::reentrant : Checkpointing::non_reentrant;
  return checkpoint(mode, hidden_states, std::forward<Forward>(forward), nested);
}

/// enable_input_require_grads (transformers 5.23, modeling_utils.py): checkpointing makes what the input embeddings
/// give want gradients, so that they reach trained weights behind frozen ones.
inline void require_input_grad(const CheckpointingConfig& checkpointing, Tensor& embeddings) {
  if (checkpointing.mode == CheckpointMode::none) return;
  if (!embeddings.context().behaviours.checkpointing_requires_input_grads && !checkpointing.input_require_grads) return;
  if (!embeddings.requires_grad()) embeddings->leaf_requires_grad = true;
}

}  // namespace oometer
