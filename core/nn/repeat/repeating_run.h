#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "nn/repeat/repeater.h"
#include "tensor/node.h"

namespace oometer {

/// Runs a stack's blocks, most of which are written instead: two are executed before those and two behind them, and
/// compared with one another. Lives as long as the graph does; hooks in it tell when backward comes by.
class RepeatingRun : public std::enable_shared_from_this<RepeatingRun> {
 public:
  /// Blocks [begin, end), those of `repeated` (not empty) written.
  RepeatingRun(const BlockModules& modules, Context& context, std::size_t begin, std::size_t end,
               std::vector<RepeatedBlocks> repeated);
  RepeatingRun(const RepeatingRun&) = delete;
  RepeatingRun& operator=(const RepeatingRun&) = delete;
  /// The graph goes. Where backward has not come by, what the blocks have saved goes with it, which nobody wrote.
  ~RepeatingRun();

  /// `block(i, x)` is block i's call.
  Tensor operator()(Tensor x, const std::function<Tensor(std::size_t, const Tensor&)>& block);

 private:
  using BackwardHook = void (RepeatingRun::*)(Backward&);

  Tensor write_forward(const Tensor& x, const RepeatedBlocks& blocks);
  void write_backward(Backward& b);
  void enter_last(Backward& b);
  void leave_first(Backward& b);
  void give_up(Backward& b, const Tensor& gradient);
  void copy_saved_in_forward(std::size_t to);
  /// `output` as the result of an operator on `input` whose backward is `member`.
  Tensor hook(const Tensor& output, const Tensor& input, BackwardHook member);
  Tensor with_hook(const Tensor& x, BackwardHook member);

  BlockPass pass_;
  const std::unique_ptr<Repeater> repeater_;
  const std::size_t begin_;
  const std::vector<RepeatedBlocks> repeated_;
  std::vector<RepeatedBlocks> written_;              ///< those whose backward has not come by
  LogPosition end_of_repetition_{};                  ///< in backward
  bool saves_input_ = false, saves_output_ = false;  ///< a block's forward, for backward
};

}  // namespace oometer
