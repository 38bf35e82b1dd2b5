#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "nn/module.h"
#include "train/config.h"

namespace oometer {

/// Equal blocks that run one on another's output (a ModuleList of decoder layers). All of them do the same: the same
/// events about other storages and modules. So two are executed at each end, and those between are written into the log
/// as the second one's forward and the last but one's backward once more. Those two are compared with one another in
/// both; should they not have done the same, Context::repetition_failed says that the run has to be executed in full.
class BlockStack {
 public:
  BlockStack() = default;
  /// Before the first block is constructed.
  explicit BlockStack(const Builder& builder);
  /// After each block's construction: its modules and parameters are those that have come since.
  void add_block(const Builder& builder);

  std::size_t size() const { return starts_.size() - 1; }

  /// Runs blocks [begin, end): `block(i, x)` is the output of block i, checkpointed as `checkpointing` says.
  Tensor run(std::size_t begin, std::size_t end, Tensor hidden_states, const CheckpointingConfig& checkpointing,
             const std::function<Tensor(std::size_t, const Tensor&)>& block) const;

 private:
  std::span<const Tensor> parameters_of(std::size_t block) const {
    return std::span(parameters_)
        .subspan(starts_[block].parameter, starts_[block + 1].parameter - starts_[block].parameter);
  }

  struct Start {
    ModuleId module;
    std::size_t parameter;
  };
  /// A place in the log.
  struct Mark {
    std::uint32_t event;
    StorageId storage;
  };
  struct Part;
  class Stencil;
  struct Heard;
  class Run;

  std::size_t taken_ = 0;           ///< of the builder's parameters
  std::vector<Tensor> parameters_;  ///< of all blocks
  std::vector<Start> starts_{{}};   ///< of each block, and where the last one ends
};

}  // namespace oometer
