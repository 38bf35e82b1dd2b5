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

/// Training under FSDP2: `fully_shard` on each block and on the model (torch/distributed/fsdp/_fully_shard, 2.15), as
/// one rank allocates it. A parameter is a shard of its first dimension; before a group's forward or backward it is
/// gathered in one buffer and copied out of that. The collectives themselves allocate nothing.
class FullyShard final : public TrainingStrategy, private ModuleListener, private GradientListener {
 public:
  /// `root`: how many models were wrapped before this one.
  FullyShard(Context& context, Model& model, const TrainingConfig& training, const ParallelConfig& parallel,
             std::uint8_t root = 0);
  ~FullyShard() override;

  void initialize() override;
  void before_forward(ModelInputs& inputs, bool last_micro_step) override;
  void after_forward(ModelOutputs& outputs) override;
  void backward(const Tensor& loss, bool last_micro_step) override;
  void step() override;
  void save() override;
  std::int64_t rank() const override { return rank_; }
  std::int64_t world_size() const override { return world_; }
  bool wraps_evaluation() const override { return true; }
  std::optional<DType> arguments_dtype() const override { return forward_inputs_dtype(); }
  bool autocasts() const override { return false; }  // Accelerator._prepare_fsdp2 does not
  std::vector<std::int64_t> ranks_that_differ() const override;

 private:
  /// FSDPParam
  struct Shard {
    Parameter full;           ///< as the model has it; without memory while it is sharded
    Tensor local;             ///< the rank's rows, in a storage as large as any rank's
    std::int64_t padded = 0;  ///< elements of that storage
  };
  enum class State : std::uint8_t { forward, pre_backward, post_backward, idle };
  /// FSDPParamGroup: the parameters of one `fully_shard`.
  struct Group {
    std::vector<ModuleId> modules;  ///< one, but of the last group of a model that accelerate wraps
    std::vector<Shard> shards;
    bool reshards_after_forward = true;
    bool is_adapter = false;  ///< peft casts what it is called with to its weight's type, which is the shard's then
    std::vector<ModuleId> to_run;  ///< _modules_to_run_forward
    ModuleId first{}, last{};      ///< that ran first in this forward, and last
    bool is_unsharded = false;
    State state = State::idle;
    Tensor gathered;                                ///< _all_gather_result
    std::vector<std::size_t> post_forward_indices;  ///< into post_forward_order_
  };

  bool hears(ModuleId module) const override { return group_of_.contains(module); }
  bool hears_keywords(ModuleId) const override { return true; }
  std::optional<DType> input_dtype(ModuleId) const override { return forward_inputs_dtype(); }
  /// Automodel's policy has cast_forward_inputs=False.
  std::optional<DType> forward_inputs_dtype() const {
    return config_.preparer == FsdpConfig::Preparer::automodel ? std::nullopt : config_.param_dtype;
  }
  void before_forward(ModuleId module) override;
  void after_forward(ModuleId module) override;
  void before_backward(ModuleId module) override {
    if (module == group_of(module).last) pre_backward(group_of(module));
  }
  void after_backward(ModuleId module) override {
    if (module == group_of(module).first) post_backward(group_of(module));
  }
  void read(const Tensor&) override {}
  Tensor full_tensor(const Tensor& parameter) override;
  /// It takes the gradients after_backward; here it only learns that they exist.
  void gradient_ready(const Tensor&) override {}

  std::uint8_t own_stream(int stream) const { return static_cast<std::uint8_t>(stream + kStreams * root_); }
  Group& group_of(ModuleId module) { return groups_[group_of_.at(module)]; }

  void make_automodels_groups(std::vector<ModuleId>& wrapped);
  void make_accelerates_groups(std::vector<ModuleId>& wrapped);
  bool is_ignored(const Parameter& parameter) const;
  std::vector<Tensor> original_state();
  void place(Group& group, const std::vector<ModuleId>& wrapped);
  void shard(Group& group);
  void pre_forward(Group& group);
  void post_forward(Group& group);
  void unshard(Group& group);
  void wait_for_unshard(Group& group);
  void copy_shards(Group& group);
  void reshard(Group& group);
  void pre_backward(Group& group);
  void post_backward(Group& group);
  DType gathered_dtype(const Shard& shard) const;
  DType accumulated_dtype(const Shard& shard) const;

  static constexpr int kStreams = 2;  ///< of an FSDPCommContext, which each root has
  const FsdpConfig& config_;
  const std::uint8_t root_;
  std::int64_t world_, rank_;
  std::vector<Group> groups_;                 ///< the model's last, as it is wrapped last
  std::map<ModuleId, std::size_t> group_of_;  ///< by block
  std::vector<ModuleId> held_;                ///< of whose whole parameters accelerate has names while it makes groups
  std::vector<std::size_t> post_forward_order_;
  const Group* iter_forward_root_ = nullptr;  ///< whose forward began first, while it lasts
  InputCast input_cast_;
  Tensor all_gather_state_;       ///< of the group gathered last in forward, until the next one's is there
  Tensor reduce_scatter_input_;   ///< of the group reduced last
  std::vector<Parameter> local_;  ///< what the optimizer has
  bool syncs_ = true;             ///< set_requires_gradient_sync
};

}  // namespace oometer
