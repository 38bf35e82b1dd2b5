#pragma once

#include <vector>

#include "nn/repeat/range_copier.h"
#include "nn/repeat/repeater.h"

namespace oometer {

/// Where nobody listens: a block's range of the log is all its own, and is copied.
class CopyingRepeater final : public Repeater {
 public:
  using Repeater::Repeater;

  bool take_forward(std::size_t kind, const BlockKind& of) override;
  void write_forward(std::size_t kind, std::size_t block) override;
  bool is_forward_same(std::size_t kind, const BlockKind& of) override;
  bool take_backward(std::size_t kind, const BlockKind& of) override;
  void write_backward(std::size_t kind, std::size_t block, StorageId incoming) override;
  bool is_backward_same(std::size_t kind, const BlockKind& of, const LogRange& range, StorageId incoming) override;
  CreatedStorages created_in_forward(std::size_t block) const override {
    return CreatedStorages(pass_.forward_of(block));
  }
  CreatedStorages created_in_backward() const override { return CreatedStorages(backward_); }

 private:
  struct Taken {
    std::size_t block;
    RangeCopier copier;
  };

  RangeCopier::Storages storages_of(std::size_t block, StorageId incoming) const {
    return {pass_.forward[block].storage, incoming, pass_.inputs[block]};
  }
  std::optional<Taken> take(const LogRange& range, std::size_t block, StorageId incoming) const;
  bool is_same(const Taken& a, const Taken& b) const;
  /// The parameters of block `to` get the gradients that those of `from` got, its backward being written at `begin`.
  void give_gradients(std::size_t from, const LogRange& backward, std::size_t to, const LogPosition& begin) const;

  std::vector<std::optional<Taken>> forwards_, backwards_;  ///< by kind
  LogRange backward_{};
};

}  // namespace oometer
