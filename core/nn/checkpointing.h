#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "autograd/checkpoint.h"
#include "tensor/context.h"
#include "tensor/tensor.h"

namespace oometer {

/// Blocks [begin, end) of a stack that are one checkpointed region: run again together, from the first one's input.
struct CheckpointSegment {
  std::size_t begin = 0, end = 0;

  bool operator==(const CheckpointSegment&) const = default;
};

struct StackSegments {
  std::string stack;  ///< dotted name, at any depth: `language_model.layers`
  std::vector<CheckpointSegment> segments;

  bool operator==(const StackSegments&) const = default;
};

/// Activation checkpointing of every block that `gradient_checkpointing_enable` covers, of every k-th, or of those
/// listed.
struct CheckpointingConfig {
  CheckpointMode mode = CheckpointMode::none;
  std::int64_t every = 1;               ///< transformers 5.23's `every_n_layers`
  bool offload = false;                 ///< transformers 5.23's: what a region keeps lies in pinned host memory
  std::vector<StackSegments> segments;  ///< if any: these and no others, as a loop of one's own would have it
  /// The model's enable_input_require_grads() is called, as is necessary to train adapters, by Axolotl without
  /// checkpoints, too. Follows from the rest.
  bool input_require_grads = false;
  /// It is called on a model that has its adapters: its hooks stand on layers as peft has wrapped them. Follows, too.
  bool hooks_adapters = false;

  bool operator==(const CheckpointingConfig&) const = default;
};

/// enable_input_require_grads (transformers 5.23, modeling_utils.py): checkpointing makes what the input embeddings
/// give want gradients, so that they reach trained weights behind frozen ones. A hook of `module`, older than those of
/// Context::modules.
inline void require_input_grad(const CheckpointingConfig& checkpointing, Tensor& embeddings, ModuleId module) {
  const bool checkpoints = checkpointing.mode != CheckpointMode::none;
  if (!(checkpoints && embeddings.context().behaviours.checkpointing_requires_input_grads) &&
      !checkpointing.input_require_grads)
    return;
  if (embeddings.requires_grad()) return;
  embeddings->leaf_requires_grad = true;
  if (embeddings.context().modules) embeddings = hook_gradient(embeddings, module, true);
}

}  // namespace oometer
