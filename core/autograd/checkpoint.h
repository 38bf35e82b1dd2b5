#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "tensor/context.h"
#include "tensor/node.h"
#include "tensor/tensor.h"
#include "tensor/tensor_list.h"

/// Activation checkpointing, after torch/utils/checkpoint.py (2.15). Recomputation is the same forward again.
namespace oometer {

/// One non-reentrant region (_CheckpointFrame): while its forward runs, every saved tensor is only counted; the first
/// that backward asks for runs the region again, which stops as soon as all of them are back (early stop).
struct CheckpointFrame : SavedTensorHooks {
  Context* context = nullptr;
  std::function<Tensor(const Tensor&)> function;
  Tensor argument;                ///< held as a saved tensor is; none: `input_saver` has it
  Handle<Node> input_saver;       ///< a SavedTensor, where hooks around the checkpoint take what it saves
  bool argument_on_host = false;  ///< save_on_cpu around the checkpoint
  bool argument_requires_grad = false;
  bool autocast = false;
  ModuleId module = 0;
  std::uint32_t packed = 0;  ///< tensors that forward saved
  std::uint32_t recomputed_count = 0;
  bool recomputing = false;
  bool recomputed = false;
  TensorList tensors;           ///< back from recomputation, dropped one by one as nodes take them
  std::vector<char> forgotten;  ///< of those saved, the ones whose node has died: nothing is kept for it

  void pack(Node& node, unsigned slot, const Tensor& tensor) override;
  Tensor unpack(const Node& node, unsigned slot) override;
  /// A node that holds promises of this frame dies unrun: its graph led nowhere (_Holder is held weakly).
  void forget(const Node& node) override;
};

enum class CheckpointMode : std::uint8_t { none, non_reentrant, reentrant };

/// torch.utils.checkpoint.checkpoint(function, argument, use_reentrant=...). What the function captures lives as long
/// as the region does, as a Python closure's variables do. `positional`: the region is called with all that it needs,
/// not bound to it by keyword (GradientCheckpointingLayer); then those are a reentrant region's saved tensors, but
/// `nested`, tensors in a tuple, which no one saves: they stay as long as the region's node. `second`: what the
/// function reads as its second argument, which may want a gradient, too; null: it has none.
Tensor checkpoint(CheckpointMode mode, const Tensor& argument, std::function<Tensor(const Tensor&)> function,
                  bool positional = false, const TensorList& nested = {},
                  const std::shared_ptr<Tensor>& second = nullptr);

}  // namespace oometer
