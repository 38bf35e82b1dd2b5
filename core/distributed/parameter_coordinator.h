#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "distributed/zero_init.h"
#include "result.h"
#include "tensor/node.h"
#include "tensor/tensor_list.h"

namespace oometer {

/// Gathers ZeRO-3's parameters before the modules that need them and lets them go after:
/// PartitionedParameterCoordinator (runtime/zero/partitioned_param_coordinator.py) and the hooks that drive it
/// (parameter_offload.py). The first forward and backward are recorded; from then on parameters are gathered ahead, in
/// the recorded order.
class ParameterCoordinator final : public ModuleListener {
 public:
  using Index = std::uint32_t;

  ParameterCoordinator(Context& context, ModuleId root, const DeepSpeedConfig& config, std::int64_t world,
                       std::uint8_t stream, std::vector<ZeroParameter> parameters);
  ~ParameterCoordinator() override;

  std::vector<ZeroParameter>& parameters() { return parameters_; }
  Index index_of(const Tensor& parameter) const { return parameter->index; }
  bool holds(const Tensor& parameter) const { return parameter->index != kNever; }
  /// Another module has the parameter too.
  void add_use(ModuleId module, const Tensor& parameter);
  /// The module that has the parameter is never called.
  void remove_use(ModuleId module, const Tensor& parameter) { of_module_.remove(module, index_of(parameter)); }
  /// Another module without parameters of its own is called, and calls it.
  void add_wrapper(ModuleId module) { wrapped_[module] = true; }
  /// `model` in the order of named_parameters(): which parameters are kept whole between modules.
  void mark_persistent(const std::vector<Parameter>& model);

  /// A forward of the whole model begins.
  void reset_step();
  /// Backward is over: modules whose inputs wanted no gradient still hold parameters.
  void release_leftovers();
  /// The optimizer's step begins, and ends.
  void release_all();
  void gather_persistent();
  /// GatheredParameters of each module's own parameters, one module after the other.
  void gather_by_module();

  /// Param.all_gather(), Param.partition().
  void gather_now(std::span<const Index> wanted);
  void release(Index index);

  /// The leaf that the parameter is in (set_z3_leaf_modules), which alone has hooks and gathers all that is within;
  /// kNever: none.
  ModuleId leaf_of(Index index) const { return leaf_of_[parameters_[index].module]; }
  /// Called when the gradient of a leaf's input has been found, before its parameters are let go.
  std::function<void(ModuleId leaf)> leaf_is_through;

  /// What DeepSpeed would have stopped with.
  const std::optional<Error>& refusal() const { return refusal_; }

  void before_forward(ModuleId module) override;
  void after_forward(ModuleId module) override;
  void before_backward(ModuleId module) override;
  void after_backward(ModuleId module) override;
  void read(const Tensor& parameter) override;
  bool hears(ModuleId module) const override;
  // While the first step is recorded, each module's parameters go with it.
  void begin_block(ModuleId block) override;
  bool end_block(ModuleId block) override;
  bool repeat_block(const MovedModules& moved) override;

 private:
  /// AllGatherCoalescedHandle: its buffers stay until each of its parameters has been waited for.
  struct AllGather {
    TensorList buffers;
    std::vector<Index> parameters;
    bool is_complete = false;
  };
  /// What a parameter needs besides being one.
  struct State {
    std::shared_ptr<AllGather> gather;        ///< in flight
    SmallVector<ModuleId, 2> active_modules;  ///< ds_active_sub_modules, a set
    std::uint32_t first_use = kNever;         ///< of the trace
    std::uint32_t next_use = kNever;          ///< the first of the current step or later, when it was last asked for
    std::int64_t last_fetched_for = -1;       ///< step
    bool persists = false;
  };
  /// A step of the trace needs a parameter.
  struct Use {
    Index parameter;
    std::uint32_t step;
    std::uint32_t next;  ///< use of the same parameter; kNever: none
  };
  enum class Trace : std::uint8_t { invalid, record, complete };
  /// A few parameters for each module, all in one vector.
  class OfModule {
   public:
    explicit OfModule(std::size_t modules) : rows_(modules) {}
    /// Until the next `add`. None for kNever.
    std::span<const Index> operator[](ModuleId module) const;
    void add(ModuleId module, Index index);
    void remove(ModuleId module, Index index);

   private:
    struct Row {
      std::size_t begin = 0, size = 0;
    };
    std::vector<Row> rows_;
    std::vector<Index> items_;
  };
  /// A module whose backward has begun.
  struct ActiveBackward {
    ModuleId module;
    std::vector<Index> recompute;  ///< ds_recompute_parameters
  };

  /// Which parameters a module lets go at a step: released_[begin, end).
  struct Release {
    ModuleId module;
    std::size_t begin, end;
    std::uint32_t next;  ///< another module's at the same step; kNever: none
  };

  /// What a block's calls have added.
  struct BlockCalls {
    std::size_t begin = 0, end = 0;                 ///< to `order_`
    std::size_t first_active = 0, last_active = 0;  ///< to `active_backward_`: modules that are called by keyword
  };

  bool is_untouched(ModuleId module) const;
  void fetch(ModuleId module, bool forward);
  void prefetch();
  void begin_gather(Index index, const std::shared_ptr<AllGather>& gather);
  void gather_alone(Index index);
  void all_gather(std::span<const Index> needed);
  void wait(Index index);
  void clean_inflight_registry();
  std::span<const Index> params_to_release(ModuleId module);
  void release_module(ModuleId module, bool forward);
  bool is_reused_soon(Index index);
  bool is_leaf_reused_soon(ModuleId leaf) const;
  void trace_subtrees();
  void invalidate_trace();
  void finish_trace();
  void assert_ints_same_as_other_ranks(std::size_t count);

  Context& context_;
  const ModuleId root_;
  const DeepSpeedConfig& config_;
  std::int64_t world_;
  std::uint8_t stream_;
  std::vector<ZeroParameter> parameters_;                                    ///< by ds_id
  std::vector<State> states_;                                                ///< the same
  const std::shared_ptr<AllGather> of_one_ = std::make_shared<AllGather>();  ///< stands for each of one parameter
  OfModule of_module_;         ///< its own and, behind them, those that it was found to read
  std::vector<bool> wrapped_;  ///< by module
  /// By module: its last forward wanted gradients. One without sets ds_grads_remaining to 0 (parameter_offload.py,
  /// _post_backward_module_hook), so that an earlier one's backward counts below it and lets nothing go.
  std::vector<bool> counts_gradients_;
  std::vector<ModuleId> leaf_of_;                 ///< by module: the leaf that it is or is in; kNever: none
  std::vector<std::pair<ModuleId, Index>> tied_;  ///< further modules of parameters
  std::vector<Index> persistent_;
  std::vector<Index> inflight_;    ///< in the order in which they were asked for
  std::vector<Index> prefetched_;  ///< prefetch's own
  std::vector<ActiveBackward> active_backward_;

  Trace trace_ = Trace::invalid;
  std::vector<ModuleId> order_;                           ///< of modules
  std::map<ModuleId, BlockCalls> blocks_;                 ///< by block, that others repeat
  std::vector<std::int64_t> traversed_;                   ///< elements of the parameters of all steps before each
  std::vector<std::int64_t> traversed_subtrees_;          ///< the same with all that is within each step's module
  std::map<ModuleId, std::vector<std::size_t>> of_leaf_;  ///< by leaf: the steps of modules that it is in
  std::vector<Use> uses_;                                 ///< of parameters, in that order
  std::vector<std::uint32_t> first_release_;              ///< by step: its first of `releases_`; kNever: none
  std::vector<Release> releases_;
  std::vector<Index> released_;
  std::size_t next_use_ = 0;
  std::size_t step_ = 0;
  std::int64_t available_ = 0;  ///< elements
  bool has_reduced_ = false;    ///< a leaf's gradients, since the block began
  std::optional<Error> refusal_;
};

}  // namespace oometer
