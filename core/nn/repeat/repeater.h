#pragma once

#include <optional>

#include "nn/repeat/block_pass.h"
#include "nn/repeat/repeated_blocks.h"

namespace oometer {

/// How what one block did is written for others, and compared with what another did.
class Repeater {
 public:
  explicit Repeater(BlockPass& pass) : pass_(pass) {}
  virtual ~Repeater() = default;

  /// Block `first` or `last` is executed between these.
  virtual void start_recording([[maybe_unused]] std::size_t block) {}
  virtual void stop_recording() {}

  /// Whether the first block's forward, which is over, can be written for others.
  virtual bool can_write_forward() = 0;
  /// Whether it can be written for a block into which `input` comes, behind blocks of another kind.
  virtual bool can_write_forward_behind_others(StorageId input) const = 0;
  virtual void write_forward(const RepeatedBlocks& blocks) = 0;
  /// Whether the last block's forward was as the first's.
  virtual bool is_forward_same() = 0;

  /// From the last one's to the first's, beginning with the gradient `incoming`; with which it ends. None: nothing was
  /// written, they have to be executed.
  virtual std::optional<StorageId> write_backward(const RepeatedBlocks& blocks, StorageId incoming) = 0;
  /// Whether the first block's backward was as the last one's.
  virtual bool is_backward_same(const LogRange& backward_of_first) = 0;

  virtual CreatedStorages created_in_forward(std::size_t block) const = 0;
  /// What comes into a block's forward.
  StorageId forward_input(std::size_t block) const {
    return block == pass_.first ? pass_.input_of_first : created_in_forward(block - 1)[pass_.output];
  }

 protected:
  BlockPass& pass_;
};

}  // namespace oometer
