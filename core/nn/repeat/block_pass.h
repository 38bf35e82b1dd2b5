#pragma once

#include <algorithm>
#include <optional>
#include <span>
#include <vector>

#include "nn/repeat/block_modules.h"
#include "tensor/context.h"
#include "trace/log.h"

namespace oometer {

/// A place in the log: between two events.
struct LogPosition {
  std::uint32_t event;
  StorageId storage;  ///< the next one that is created
  WorkMark work = {};
};

inline LogPosition end_of(const Log& log) {
  return {static_cast<std::uint32_t>(log.events.size()), static_cast<StorageId>(log.storages.size()), log.work.mark()};
}

struct LogRange {
  /// Whether the storage was created in it.
  bool created(StorageId id) const { return id >= begin.storage && id < end.storage; }
  StorageId storages() const { return end.storage - begin.storage; }
  std::uint32_t events() const { return end.event - begin.event; }
  WorkRange work() const { return {begin.work, end.work}; }

  LogPosition begin, end;
};

/// The storages that a block created in its forward, in order. Blocks do the same, so that a storage of one is known by
/// its index in all of them.
class CreatedStorages {
 public:
  CreatedStorages() = default;
  /// All that were created there.
  explicit CreatedStorages(const LogRange& range) : first_(range.begin.storage), size_(range.storages()) {}
  /// Those listed: between them a listener created its own.
  explicit CreatedStorages(std::span<const StorageId> ids)
      : ids_(ids.data()), size_(static_cast<StorageId>(ids.size())) {}

  StorageId size() const { return size_; }
  StorageId operator[](StorageId index) const { return ids_ ? ids_[index] : first_ + index; }
  std::optional<StorageId> index_of(StorageId id) const {
    const StorageId index =
        ids_ ? static_cast<StorageId>(std::lower_bound(ids_, ids_ + size_, id) - ids_) : id - first_;
    if (index >= size_ || (*this)[index] != id) return std::nullopt;
    return index;
  }

 private:
  const StorageId* ids_ = nullptr;
  StorageId first_ = 0, size_ = 0;
};

/// Blocks of a stack that do the same: those that are written do in forward as `first` does, which runs before them,
/// and in backward as `last` does, which runs behind them.
struct BlockKind {
  std::size_t first, last;
  StorageId output = kNever;  ///< index of a block's output among what its forward creates
  bool saves_input = false;   ///< for backward, while it runs forward
  bool saves_output = false;
  LogRange backward{};                  ///< that of `last`
  StorageId gradient_of_last = kNever;  ///< what comes into it
  StorageId gradient_output = kNever;   ///< index of what goes out of it among what it creates
  bool hands_gradient_on = false;       ///< it accumulates into what came, and hands that on
};

/// One pass through a stack's blocks, and the backward that follows it: where in the log each block's forward lies.
struct BlockPass {
  LogPosition now() const { return end_of(context.log); }
  LogRange forward_of(std::size_t block) const { return {forward[block], forward[block + 1]}; }
  bool is_in_backward(StorageId id) const { return id >= forward.back().storage; }

  /// Whether two blocks created the same.
  bool is_same_storage(StorageId a, std::size_t block_a, StorageId b, std::size_t block_b) const {
    const StorageRecord &x = context.log.storages[a], &y = context.log.storages[b];
    return x.bytes == y.bytes && x.ndim == y.ndim && x.dtype == y.dtype && x.role == y.role &&
           x.recomputed == y.recomputed && x.module == modules.move(block_b, block_a)(y.module) &&
           std::equal(dims(x).begin(), dims(x).end(), dims(y).begin());
  }

  /// The run has to be executed in full.
  void fail() const { context.repetition_failed = true; }

  const BlockModules& modules;
  Context& context;
  std::vector<LogPosition> forward;  ///< where each block's begins, and where the last one's ends
  std::vector<StorageId> inputs;     ///< what comes into each block's forward

 private:
  std::span<const std::int64_t> dims(const StorageRecord& record) const {
    return std::span(context.log.dims).subspan(record.shape, record.ndim);
  }
};

}  // namespace oometer
