#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include "nn/checkpointing.h"
#include "nn/module.h"
#include "nn/repeat/block_modules.h"
#include "tensor/tensor_list.h"

namespace oometer {

/// What a model's blocks have of their own.
struct BlockTraits {
  TensorList nested = {};                          ///< see checkpoint()
  bool positional = false;                         ///< the same, in every version
  std::function<int(std::size_t)> kind = nullptr;  ///< blocks of one do the same in forward; null: all do
  std::shared_ptr<Tensor>* second = nullptr;       ///< checkpoint()'s, of the block that block(i) was asked for last
};

/// Blocks that run one on another's output (a ModuleList of decoder layers), of one kind or several. All of a kind do
/// the same: the same events about other storages and modules. So the first and the last one of each kind are executed,
/// with the stack's ends, and those between are written into the log, in their order: as that first one's forward and
/// that last one's backward once more. These two are compared with one another in both; should they not have done the
/// same, Context::repetition_failed says that the run has to be executed in full.
class BlockStack {
 public:
  BlockStack() = default;
  /// Before the first block is constructed.
  explicit BlockStack(const Builder& builder);
  /// After each block's construction: its modules are those that have come since.
  void add_block(const Builder& builder);

  std::size_t size() const { return modules_.size(); }

  using Forward = std::function<Tensor(const Tensor&)>;

  /// Runs blocks [begin, end), checkpointed as `checkpointing` says. `block(i)` is block i's forward: it takes the
  /// hidden states; what else it needs it captures, as the partial of GradientCheckpointingLayer does
  /// (transformers 5.23, modeling_layers.py).
  Tensor run(std::size_t begin, std::size_t end, Tensor hidden_states, const CheckpointingConfig& checkpointing,
             const std::function<Forward(std::size_t)>& block, const BlockTraits& traits = {}) const;

  std::size_t first_block = 0;  ///< checkpointable blocks of the whole model before this stack

 private:
  /// Of each of blocks [begin, end) the first one that is alike: of the same kind, with modules and parameters alike.
  std::vector<std::size_t> alike(const Context& context, std::size_t begin, std::size_t end,
                                 const BlockTraits& traits) const;
  /// The job's segments of this stack; null: it has none.
  const std::vector<CheckpointSegment>* segments_of(const CheckpointingConfig& checkpointing, const Log& log) const;

  BlockModules modules_;
};

}  // namespace oometer
