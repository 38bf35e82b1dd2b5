#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "nn/repeat/repeater.h"
#include "nn/repeat/tensor_metadata.h"
#include "tensor/node.h"

namespace oometer {

/// Runs a stack's blocks, most of which are written instead: of each kind the first and the last one are executed, and
/// compared with one another, but for the stack's own ends. Lives as long as the graph does; hooks in it tell when
/// backward comes by.
class RepeatingRun : public std::enable_shared_from_this<RepeatingRun> {
 public:
  /// Blocks [begin, begin + like.size()): `like[i]` is the first one that does as block `begin + i` does.
  RepeatingRun(const BlockModules& modules, Context& context, std::size_t begin, const std::vector<std::size_t>& like);
  RepeatingRun(const RepeatingRun&) = delete;
  RepeatingRun& operator=(const RepeatingRun&) = delete;
  /// The graph goes. Where backward has not come by, what the blocks have saved goes with it, which nobody wrote.
  ~RepeatingRun();

  /// Whether there are blocks to write.
  bool repeats() const { return !kinds_.empty(); }

  /// `block(i, x)` is block i's call.
  Tensor operator()(Tensor x, const std::function<Tensor(std::size_t, const Tensor&)>& block);

 private:
  /// Blocks [begin, end) that are written into the log, not executed.
  struct WrittenBlocks {
    std::size_t begin, end;
  };
  /// A parameter's copy in autocast's cache that a block's forward made.
  struct CachedWeight {
    std::size_t parameter;  ///< of the block
    StorageId created;      ///< index among what its forward creates
    bool is_saved;          ///< for backward: it outlives the cache
    bool operator==(const CachedWeight& other) const = default;
  };
  struct Kind : BlockKind {
    std::optional<TensorMetadata> hidden_states;  ///< that come into its forward, and out of it; none: it is executed
    std::optional<TensorMetadata> gradient;       ///< the same of its backward
    std::size_t written = 0;                      ///< blocks
    std::vector<CachedWeight> cached_weights;     ///< in the order of the cache
  };
  static constexpr std::size_t kNone = static_cast<std::size_t>(-1);

  std::size_t kind_of(std::size_t block) const { return kind_of_[block - begin_]; }
  bool is_first_or_last(std::size_t block) const {
    const Kind& kind = kinds_[kind_of(block)];
    return block == kind.first || block == kind.last;
  }
  bool can_write(std::size_t block, const TensorMetadata& hidden_states) const {
    return kind_of(block) != kNone && !is_first_or_last(block) && kinds_[kind_of(block)].hidden_states == hidden_states;
  }
  Tensor write_forward(const Tensor& x, std::size_t begin, std::size_t end);
  /// What `block`, whose forward is over, added to autocast's cache from its `begin`-th weight on; none: another's.
  [[gnu::noinline]] std::optional<std::vector<CachedWeight>> cached_weights_of(std::size_t block,
                                                                               std::size_t begin) const;
  [[gnu::noinline]] bool take_cached_weights(Kind& kind, std::size_t block, std::size_t begin) const;
  /// Adds as much of a block that is written.
  [[gnu::noinline]] void cache_weights(const Kind& kind, std::size_t block);
  void write_backward(Backward& b);
  /// Backward comes to a kind's first or last block, and leaves it.
  void enter(std::size_t block, Backward& b);
  void leave(std::size_t block, Backward& b);
  void give_up(Backward& b, const Tensor& gradient);
  bool leaves_something(const Kind& kind, std::size_t block) const;
  void copy_saved_in_forward(std::size_t to);
  using BackwardHook = std::function<void(RepeatingRun&, Backward&)>;
  /// `output` as the result of an operator on `input` whose backward is `hook`.
  Tensor hook(const Tensor& output, const Tensor& input, BackwardHook its);
  Tensor with_hook(const Tensor& x, BackwardHook its);

  BlockPass pass_;
  const std::unique_ptr<Repeater> repeater_;
  const std::size_t begin_;
  std::vector<std::size_t> kind_of_;  ///< by block; kNone: it is executed, being at an end or one of few
  std::vector<Kind> kinds_;
  std::vector<WrittenBlocks> written_;  ///< those whose backward has not come by
  LogPosition begin_of_backward_{};     ///< of the block that was entered
  StorageId incoming_ = kNever;         ///< into it
};

}  // namespace oometer
