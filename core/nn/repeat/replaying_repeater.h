#pragma once

#include <optional>
#include <span>
#include <vector>

#include "nn/repeat/block_recorder.h"
#include "nn/repeat/repeater.h"

namespace oometer {

/// Where listeners are called on the way: a block's own events are written, and the calls are made between them.
class ReplayingRepeater final : public Repeater {
 public:
  explicit ReplayingRepeater(BlockPass& pass) : Repeater(pass), recorder_(pass) {}

  void start_recording(std::size_t block) override { recorder_.start(block); }
  void stop_recording() override { recorder_.stop(); }
  bool take_forward(std::size_t kind, const BlockKind& of) override;
  void write_forward(std::size_t kind, std::size_t block) override;
  bool is_forward_same(std::size_t kind, const BlockKind& of) override;
  bool take_backward(std::size_t kind, const BlockKind& of) override;
  void write_backward(std::size_t kind, std::size_t block, StorageId incoming) override;
  bool is_backward_same(std::size_t kind, const BlockKind& of, const LogRange& range, StorageId incoming) override;
  CreatedStorages created_in_forward(std::size_t block) const override {
    const Created& created = created_of_[block];
    return CreatedStorages(std::span(created_).subspan(created.begin, created.size));
  }
  CreatedStorages created_in_backward() const override { return CreatedStorages(created_in_backward_); }

 private:
  struct Taken {
    std::size_t block;
    RecordedBlock record;
  };
  struct Created {
    std::size_t begin = 0, size = 0;
  };

  std::optional<Taken> take_forward(std::size_t block);
  std::optional<Taken> take_backward(const LogRange& range, std::size_t block, StorageId incoming);
  bool is_same(const Taken& a, const Taken& b) const;
  /// What the block did, as block `to` does it, into which `incoming` comes. The storages that are created go to the
  /// end of `created`.
  void write(const Taken& taken, std::size_t to, StorageId incoming, std::vector<StorageId>& created);
  /// What the block holds of its parameters' memory when `call` comes.
  void update_holds(const RecordedBlock& record, std::size_t call, std::span<const Parameter> parameters,
                    std::vector<Storage>& holds);
  void make_call(const RecordedBlock& record, const RecordedBlock::HookCall& call, const MovedModules& moved,
                 std::span<const Parameter> parameters, Storage gradient);
  /// The last handle goes; the event of its free is written elsewhere.
  StorageId drop_silently(Storage& storage);

  BlockRecorder recorder_;
  const Tensor none_;
  std::vector<std::optional<Taken>> forwards_, backwards_;  ///< by kind
  std::vector<StorageId> created_;                          ///< in each block's forward, block after block
  std::vector<Created> created_of_;                         ///< where in it each block's are
  std::vector<StorageId> created_in_backward_;
};

}  // namespace oometer
