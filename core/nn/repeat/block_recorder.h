#pragma once

#include <optional>
#include <span>
#include <vector>

#include "nn/repeat/recorded_block.h"

namespace oometer {

/// Stands in the listeners' place while a block is executed: notes each call, and hands it on.
class BlockRecorder final : private GradientListener, private ModuleListener {
 public:
  explicit BlockRecorder(BlockPass& pass);
  BlockRecorder(const BlockRecorder&) = delete;
  BlockRecorder& operator=(const BlockRecorder&) = delete;
  ~BlockRecorder() override { stop(); }

  void start(std::size_t block);
  void stop();

  /// What a block's own events may be about, but for what it created itself.
  struct Known {
    StorageId incoming;
    StorageId incoming_in_forward = kNever;  ///< in backward
    CreatedStorages created_in_forward = {};
  };
  /// The block's own part of `range`, where it ran since start(); none if it was about more than itself and what came
  /// into it.
  std::optional<RecordedBlock> take(const LogRange& range, std::size_t block, const Known& known);

  /// Calls the listener itself.
  void call(Hook hook, ModuleId of, const Tensor& parameter);
  /// The ModuleListener did its part in another block as well (RecordedBlock::includes_listener); false: it could not.
  bool repeat_listener(const MovedModules& moved) { return modules_->repeat_block(moved); }

 private:
  /// The memory of a parameter of the block that is executed. What changes its count of references between two calls is
  /// the block.
  struct ParameterMemory {
    const TensorImpl* parameter;
    const StorageImpl* storage = nullptr;
    StorageId id = kNever;
    std::uint32_t references = 0;
    std::uint32_t held = 0;  ///< by the block
    std::size_t hold = 0;    ///< which, if so
  };

  bool is_recording() const { return context_.gradients == this || context_.modules == this; }
  void look_before_call();
  void look_after_call();
  RecordedBlock::HookCall describe(Hook hook, ModuleId of = kNever) const {
    return {hook, context_.recomputing, context_.grad_mode, context_.stream, context_.module, of};
  }
  std::optional<RecordedBlock::HookCall> describe(Hook hook, const Tensor& parameter) const;
  void note(RecordedBlock::HookCall noted, const Tensor& parameter = {});

  void before_forward(ModuleId module) override { note(describe(Hook::before_forward, module)); }
  void after_forward(ModuleId module) override { note(describe(Hook::after_forward, module)); }
  void before_backward(ModuleId module) override { note(describe(Hook::before_backward, module)); }
  void after_backward(ModuleId module) override { note(describe(Hook::after_backward, module)); }
  bool hears(ModuleId module) const override { return modules_->hears(module); }
  bool hears_keywords(ModuleId module) const override { return modules_->hears_keywords(module); }
  std::optional<DType> input_dtype(ModuleId module) const override { return modules_->input_dtype(module); }
  bool is_post_accumulate() const override { return gradients_->is_post_accumulate(); }
  void read(const Tensor& parameter) override;
  void gradient_ready(const Tensor& parameter) override;

  BlockPass& pass_;
  Context& context_;
  GradientListener* const gradients_;
  ModuleListener* const modules_;
  ModuleId module_ = 0;                    ///< the block
  std::span<const Parameter> parameters_;  ///< its own
  std::vector<ParameterMemory> memory_;    ///< of these
  RecordedBlock recording_;
  std::size_t first_share_ = 0;  ///< of what is recorded, in Log::shares
};

}  // namespace oometer
