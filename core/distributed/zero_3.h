#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "distributed/deepspeed.h"
#include "distributed/parameter_coordinator.h"
#include "tensor/tensor_list.h"

namespace oometer {

/// Training under DeepSpeed ZeRO stage 3: what DeepSpeedZeroOptimizer_Stage3 (runtime/zero/stage3.py; 0.12.6, 0.14.4
/// and 0.19.8, told apart by Behaviours) allocates on one rank, in its order and on its streams. All ranks' partitions
/// are as large, padding included. The collectives themselves work in place. What is offloaded is counted in
/// host_memory().
class DeepSpeedZeroOptimizerStage3 final : public DeepSpeedTrainer, private GradientListener {
 public:
  /// `parameters`: those that zero.Init has cut; others are cut at initialisation.
  DeepSpeedZeroOptimizerStage3(Context& context, Model& model, const TrainingConfig& training,
                               const ParallelConfig& parallel, std::vector<ZeroParameter> parameters);
  ~DeepSpeedZeroOptimizerStage3() override;

  void initialize() override;
  void before_forward(ModelInputs& inputs, bool last_micro_step) override;
  void after_forward(ModelOutputs& outputs) override;
  /// The hooks are the modules' own, and run whoever calls the model.
  bool wraps_evaluation() const override { return true; }
  void save() override;
  void step() override;
  std::int64_t rank() const override { return rank_; }
  std::vector<std::int64_t> ranks_that_differ() const override;

 private:
  using Index = ParameterCoordinator::Index;
  /// A sub-group: what the optimizer steps at once.
  struct Group {
    std::vector<Index> parameters;
    std::int64_t numel = 0;  ///< of the rank's partitions
    Tensor master;           ///< fp32_partitioned_groups_flat
  };

  void gradient_ready(const Tensor& parameter) override;
  void put_in_bucket(Index index);
  void reduce_leaf(ModuleId leaf);
  bool is_post_accumulate() const override { return context_.behaviours.zero_post_accumulate_hooks; }
  void backward_epilogue(bool last_micro_step) override;

  std::vector<ModuleId> roots() const;
  void find_modules_to_save();
  void refuse_what_deepspeed_refuses();
  void make_groups();
  void defragment();
  void make_masters();
  void reduce_bucket();
  std::int64_t partition_numel(Index index) { return coordinator_->parameters()[index].partition_numel; }

  void check_overflow();
  Tensor group_norm(const Group& group);
  void offload_gradient(Index index);
  void offloaded_group_norm(const Group& group);
  void step_group(std::size_t index, const Tensor& norm);
  /// A flat buffer of the group's partitions, shared out among their modules.
  void share(const Tensor& buffer, const Group& group, Role role);
  /// Sub-groups whose optimizer is on the device, the first ones (subgroup_to_device).
  std::size_t groups_on_device() const;
  void keep_on_host();

  std::int64_t rank_;
  DType trained_dtype_ = DType::bfloat16;  ///< of what trains: float32 where adapters are
  std::vector<ZeroParameter> parameters_;  ///< until there is a coordinator
  std::unique_ptr<ParameterCoordinator> coordinator_;
  std::vector<Group> groups_;
  Tensor inf_or_nan_tracker_, flat_;  ///< lp_param_buffer
  Tensor gradients_;                  ///< grad_partitions_flat_buffer
  Tensor backup_parameter_;           ///< what backup_optimizer is made with, until it steps

  Tensor bucket_;  ///< the IPG bucket
  std::int64_t bucket_elements_ = 0;
  std::vector<Index> in_bucket_;
  std::map<ModuleId, std::vector<Index>> of_leaves_;  ///< what trains in each
  std::size_t held_back_ = 0;                         ///< gradients of leaves
};

}  // namespace oometer
