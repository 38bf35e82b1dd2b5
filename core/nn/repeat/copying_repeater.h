#pragma once

#include "nn/repeat/range_copier.h"
#include "nn/repeat/repeater.h"

namespace oometer {

/// Where nobody listens: a block's range of the log is all its own, and is copied at a fixed distance.
class CopyingRepeater final : public Repeater {
 public:
  using Repeater::Repeater;

  bool can_write_forward() override;
  bool can_write_forward_behind_others(StorageId input) const override;
  void write_forward(const RepeatedBlocks& blocks) override;
  bool is_forward_same() override;
  std::optional<StorageId> write_backward(const RepeatedBlocks& blocks, StorageId incoming) override;
  bool is_backward_same(const LogRange& backward_of_first) override;
  CreatedStorages created_in_forward(std::size_t block) const override {
    return CreatedStorages(pass_.forward_of(block));
  }

 private:
  // An event's storage is kept as its distance from where the block began, in forward or in this range.
  StorageId origin_of(StorageId id, const LogRange& range, std::size_t block) const {
    return (pass_.is_in_backward(id) ? range.begin : pass_.forward[block]).storage;
  }
  /// Whether all that `range` is about is the block's own, or that of the neighbour that ran just before.
  bool is_about_itself(const LogRange& range, std::size_t block) const;
  /// Whether all that `range` is about, but for `incoming` and the block's own, is what came into the block's forward.
  /// So it can be written behind a block of another kind.
  bool needs_only(const LogRange& range, std::size_t block, StorageId incoming) const;
  bool is_same(const LogRange& a, std::size_t block_a, const LogRange& b, std::size_t block_b) const;
  RangeCopier copier(const LogRange& range, std::size_t from, std::size_t to) const;
  /// The parameters of block `to` get the gradients that the last one's got, its backward being written at `begin`.
  void give_gradients(std::size_t to, const LogPosition& begin) const;
};

}  // namespace oometer
