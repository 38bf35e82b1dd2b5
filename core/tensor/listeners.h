#pragma once

#include <algorithm>
#include <optional>
#include <vector>

#include "tensor/tensor.h"
#include "trace/log.h"

/// Who hears of what a model does: what hangs on PyTorch's hooks.
namespace oometer {

class Context;

// Listeners act when they are told of something and at no other time, and see nothing of a model but its parameters and
// their gradients. So what a block does between two calls may be written into the log instead of being executed, as
// long as the calls are made (nn/repeat).

/// Hears of gradients as AccumulateGrad's post hooks do: where DDP and ZeRO hang their buckets.
class GradientListener {
 public:
  virtual ~GradientListener() = default;
  /// `parameter.grad` has just received this backward's gradient.
  virtual void gradient_ready(const Tensor& parameter) = 0;
  /// It hangs on register_post_accumulate_grad_hook: AccumulateGrad has let its input go by then. The node's own post
  /// hooks run while the engine still holds it.
  virtual bool is_post_accumulate() const { return false; }
};

/// Hears of the blocks of a stack as a module's forward hooks do: where FSDP1 gathers and shards.
class BlockListener {
 public:
  virtual ~BlockListener() = default;
  /// The block is about to run on `input`; what it runs on instead. Not called for a recomputation, which runs the
  /// block's `forward`, not its hooks (transformers 5.23, GradientCheckpointingLayer).
  virtual Tensor before_block(ModuleId block, Tensor input) = 0;
  /// It has given `output`; what is handed on instead.
  virtual Tensor after_block(ModuleId block, Tensor output) = 0;
};

/// What a module of one block is in another that is equal; what is outside of it stays.
struct MovedModules {
  bool moves(ModuleId module) const { return module - begin < count; }
  ModuleId operator()(ModuleId module) const { return moves(module) ? module + by : module; }

  ModuleId begin, count;  ///< the block's modules
  ModuleId by;            ///< modulo 2^32
};

/// Hears of modules' calls, as nn.Module's hooks do: where ZeRO-3 and FSDP2 gather parameters and let them go. `module`
/// is kNever for one that has no parameters and no place in the tree (an activation function). Of a block that is run
/// again for its checkpoint only the modules within are called (transformers 5.23, GradientCheckpointingLayer).
class ModuleListener {
 public:
  virtual ~ModuleListener() = default;
  virtual void before_forward(ModuleId module) = 0;
  virtual void after_forward(ModuleId module) = 0;
  /// A gradient of the module's result has come, or one of its argument has been found.
  virtual void before_backward(ModuleId module) = 0;
  virtual void after_backward(ModuleId module) = 0;
  /// A module's forward looks at a parameter that is not its own.
  virtual void read(const Tensor& parameter) = 0;
  /// What DTensor.full_tensor() makes of one that is sharded now; of any other, itself.
  virtual Tensor full_tensor(const Tensor& parameter) { return parameter; }
  /// Whether the module has hooks; those of others are not called.
  virtual bool hears([[maybe_unused]] ModuleId module) const { return true; }
  /// Whether its hooks see what a module is called with by keyword, too.
  virtual bool hears_keywords([[maybe_unused]] ModuleId module) const { return false; }
  /// What a module is called with is cast to this before its hooks (FSDP's cast_forward_inputs), if to any.
  virtual std::optional<DType> input_dtype([[maybe_unused]] ModuleId module) const { return std::nullopt; }

  // Where it does the same in each of a stack's equal blocks, what it did in one is written for the others with what
  // the block itself did: it hears of each of them as a whole.
  virtual void begin_block([[maybe_unused]] ModuleId block) {}
  /// Whether others can be written so: it has been left as it was found.
  virtual bool end_block([[maybe_unused]] ModuleId block) { return false; }
  /// That block's calls were made once more, by other modules. False if it would not have done the same.
  virtual bool repeat_block([[maybe_unused]] const MovedModules& moved) { return false; }
};

/// Hears how a model is constructed: where zero.Init cuts parameters.
class ConstructionListener {
 public:
  virtual ~ConstructionListener() = default;
  /// Construction has come to that module: whatever does not hold it is complete.
  virtual void module_reached(ModuleId module) = 0;
  virtual void parameter_made(const Tensor& parameter, ModuleId module) = 0;
};

/// Listeners of a kind, each of one model, in the order in which they came.
template <class Listener>
class Listeners {
 public:
  explicit Listeners(const Context& context) : context_(context) {}

  void add(ModuleId root, Listener& listener) { listeners_.push_back({root, &listener}); }
  void remove(const Listener& listener) {
    std::erase_if(listeners_, [&](const OfModel& one) { return one.listener == &listener; });
  }
  bool empty() const { return listeners_.empty(); }
  /// The one that there is, of the one model that there is; else null.
  Listener* only() const;

 protected:
  /// Those of the module's model. Of a module without a place in the tree (kNever): of the one that is running.
  std::vector<Listener*> of(ModuleId module) const;

  const Context& context_;

 private:
  struct OfModel {
    ModuleId root;
    Listener* listener;
  };
  std::vector<OfModel> listeners_;
};

/// All of them as one listener. A gradient belongs to the model that runs.
class GradientListeners final : public Listeners<GradientListener>, public GradientListener {
 public:
  using Listeners::Listeners;
  void gradient_ready(const Tensor& parameter) override;
  bool is_post_accumulate() const override;
};

class BlockListeners final : public Listeners<BlockListener>, public BlockListener {
 public:
  using Listeners::Listeners;
  Tensor before_block(ModuleId block, Tensor input) override;
  Tensor after_block(ModuleId block, Tensor output) override;
};

class ModuleListeners final : public Listeners<ModuleListener>, public ModuleListener {
 public:
  using Listeners::Listeners;
  void before_forward(ModuleId module) override;
  void after_forward(ModuleId module) override;
  void before_backward(ModuleId module) override;
  void after_backward(ModuleId module) override;
  void read(const Tensor& parameter) override;
  Tensor full_tensor(const Tensor& parameter) override;
  bool hears(ModuleId module) const override;
  bool hears_keywords(ModuleId module) const override;
  std::optional<DType> input_dtype(ModuleId module) const override;
  void begin_block(ModuleId block) override;
  bool end_block(ModuleId block) override;
  bool repeat_block(const MovedModules& moved) override;
};

}  // namespace oometer
