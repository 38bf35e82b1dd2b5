#pragma once

#include "nn/repeat/block_recorder.h"
#include "nn/repeat/repeater.h"

namespace oometer {

/// Where listeners are called on the way: a block's own events are written, and the calls are made between them.
class ReplayingRepeater final : public Repeater {
 public:
  explicit ReplayingRepeater(BlockPass& pass) : Repeater(pass), recorder_(pass) {}

  void start_recording(std::size_t block) override { recorder_.start(block); }
  void stop_recording() override { recorder_.stop(); }
  bool can_write_forward() override;
  /// Blocks of several kinds are not run in one pass when somebody listens.
  bool can_write_forward_behind_others(StorageId) const override { return false; }
  void write_forward(const RepeatedBlocks& blocks) override;
  bool is_forward_same() override;
  std::optional<StorageId> write_backward(const RepeatedBlocks& blocks, StorageId incoming) override;
  bool is_backward_same(const LogRange& backward_of_first) override;
  CreatedStorages created_in_forward(std::size_t block) const override {
    return CreatedStorages(
        std::span(created_).subspan((block - pass_.first) * forward_->created.size(), forward_->created.size()));
  }

 private:
  std::optional<RecordedBlock> recorded_backward(const LogRange& range, std::size_t block, StorageId incoming);
  /// What block `from` did, as block `to` does it, into which `incoming` comes. The storages that are created go to the
  /// end of `created`.
  void write(const RecordedBlock& record, std::size_t from, std::size_t to, StorageId incoming,
             std::vector<StorageId>& created);
  /// What the block holds of its parameters' memory when `call` comes.
  void update_holds(const RecordedBlock& record, std::size_t call, std::span<const Parameter> parameters,
                    std::vector<Storage>& holds);
  void make_call(const RecordedBlock& record, const RecordedBlock::HookCall& call, const MovedModules& moved,
                 std::span<const Parameter> parameters, Storage gradient);
  /// The last handle goes; the event of its free is written elsewhere.
  StorageId drop_silently(Storage& storage);

  BlockRecorder recorder_;
  const Tensor none_;
  std::optional<RecordedBlock> forward_;   ///< of the first block
  std::optional<RecordedBlock> backward_;  ///< of the last block
  std::vector<StorageId> created_;         ///< in each block's forward, block after block
  StorageId gradient_of_first_ = kNever;
};

}  // namespace oometer
