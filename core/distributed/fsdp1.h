#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "distributed/config.h"
#include "distributed/input_cast.h"
#include "tensor/tensor_list.h"
#include "train/step.h"

namespace oometer {

class Backward;

/// Training under FSDP1: FullyShardedDataParallel around each block and the model (torch/distributed/fsdp, 2.15:
/// _flat_param.py, _runtime_utils.py), as one rank allocates it. A unit's parameters lie end to end in one flat
/// parameter, of which a rank has a part; the whole is gathered before the unit's forward or backward, and the model's
/// parameters are then views of it. So the flat parameter's gradient is a concatenation of theirs, frozen ones'
/// included, if any of them is trained.
class FullyShardedDataParallel final : public TrainingStrategy, private BlockListener, private ModuleListener {
 public:
  FullyShardedDataParallel(Context& context, Model& model, const TrainingConfig& training,
                           const ParallelConfig& parallel);
  ~FullyShardedDataParallel() override;

  void initialize() override;
  void before_forward(ModelInputs& inputs, bool last_micro_step) override;
  void after_forward(ModelOutputs& outputs) override;
  void backward(const Tensor& loss, bool last_micro_step) override;
  void step() override;
  void save() override;
  std::int64_t rank() const override { return rank_; }
  std::int64_t world_size() const override { return world_; }
  bool wraps_evaluation() const override { return true; }
  std::optional<DType> arguments_dtype() const override { return config_.param_dtype; }
  std::vector<std::int64_t> ranks_that_differ() const override;

 private:
  /// HandleTrainingState
  enum class State : std::uint8_t { idle, forward, backward_pre, backward_post };
  /// A piece of a flat parameter: one of the model's parameters, or padding before the next.
  struct Piece {
    std::optional<Parameter> parameter{};  ///< none: padding
    std::int64_t numel = 0;
    std::int64_t in_shard = 0;  ///< elements in this rank's part
    Tensor shard{};             ///< what the optimizer has of it, if the rank has any and it is trained
    bool has_grad = false;      ///< its `.grad` is bound to a view
  };
  /// FlatParamHandle
  struct Unit {
    ModuleId module = 0;
    std::vector<Piece> pieces;
    std::int64_t numel = 0;  ///< of all pieces
    std::int64_t shard = 0;  ///< a rank's part, padded to the first's size
    DType dtype = DType::float32;
    bool is_leaf = false;         ///< of a module without children, which peft's policy wraps
    bool has_old_shards = false;  ///< accelerate has made the flat parameter float32, of which no piece is a view yet
    Tensor flat;                  ///< flat_param: the leaf that gradients arrive at
    Tensor local;                 ///< _local_shard
    Tensor gathered;              ///< _full_param_padded, or what stands for it where nothing is sharded
    Tensor saved;                 ///< _saved_grad_shard
    Tensor on_device;             ///< a copy of the local shard that is on the host
    State state = State::idle;
    bool is_sharded = true;      ///< flat_param is the local shard
    bool skipped_views = false;  ///< _skipped_use_sharded_views
    bool prefetched = false;
    bool needs_pre_forward_unshard = false, needs_pre_backward_unshard = false;
    bool ran_pre_backward = false, post_backward_called = false;
    const TensorImpl* output = nullptr;  ///< what its hook in backward hangs on
    Unit* frozen_taker = nullptr;        ///< a unit without gradients whose hook hangs there, too
    std::optional<std::size_t> pre_forward_index, post_forward_index;
  };

  bool hears(ModuleId module) const override {
    const auto found = unit_of_.find(module);
    return found != unit_of_.end() && units_[found->second].is_leaf;
  }
  void before_forward(ModuleId module) override;
  void after_forward(ModuleId module) override;
  void before_backward(ModuleId module) override { pre_backward(units_[unit_of_.at(module)]); }
  void after_backward(ModuleId) override {}
  void read(const Tensor&) override {}
  Tensor before_block(ModuleId block, Tensor input) override;
  Tensor after_block(ModuleId block, Tensor output) override;

  void gather_units();
  std::vector<std::size_t> order_of_wrapping() const;
  void place(const Unit& unit);
  void upcast(Unit& unit);
  void check_reentrant_blocks();
  void flatten(Unit& unit);
  void keep_on_host(const Unit& unit);
  void take_shares(Unit& unit, std::int64_t rank);
  std::int64_t worst_rank();
  void lazy_init();
  void unshard(Unit& unit);
  void use_views(Unit& unit);
  void set_parameters_dtype(const Unit& unit, DType dtype);
  void reshard(Unit& unit, bool free);
  void prefetch(Unit& unit);
  void pre_forward(Unit& unit);
  void post_forward(Unit& unit);
  void pre_backward(Unit& unit);
  void flat_gradient(Unit& unit, Backward& b);
  void post_backward(Unit& unit, const Tensor& computed);
  void post_backward_reshard(Unit& unit);
  void reshard_only(Unit& unit);
  void reduce_gradient(Unit& unit);
  void use_gradient_views(Unit& unit);
  void final_callback();
  void reset_gradients();
  void clip_grad_norm();
  void find_norm_on_host();
  Tensor hook(const Tensor& tensor, void (FullyShardedDataParallel::*member)(Unit&), Unit& unit);
  Tensor hook_output(Tensor output, Unit& unit);
  void output_gradient(Unit& unit);

  bool shards() const { return config_.sharding != FsdpConfig::Sharding::no_shard; }
  bool reshards_after_forward() const { return config_.sharding == FsdpConfig::Sharding::full_shard; }
  DType gathered_dtype(const Unit& unit) const { return config_.param_dtype.value_or(unit.dtype); }
  DType reduce_dtype(const Unit& unit) const;
  Tensor flat_tensor(Unit& unit, Op op, std::int64_t numel, DType dtype, Role role);
  void share(const Tensor& tensor, const Unit& unit);

  FsdpConfig config_;
  std::int64_t world_, rank_ = 0;
  std::optional<std::int64_t> given_rank_;
  std::vector<Unit> units_;                  ///< the model's first, then as _get_fsdp_states goes
  std::map<ModuleId, std::size_t> unit_of_;  ///< by block
  std::vector<std::size_t> pre_forward_order_, post_forward_order_;
  InputCast input_cast_;
  Tensor zero_;  ///< clip_grad_norm_'s _zero_scalar
  bool initialized_ = false, first_iteration_ = true, syncs_ = true;
};

}  // namespace oometer
