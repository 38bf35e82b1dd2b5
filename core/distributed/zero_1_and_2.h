#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "distributed/deepspeed.h"
#include "distributed/partition.h"
#include "tensor/tensor_list.h"

namespace oometer {

/// Training under DeepSpeed ZeRO stage 1 or 2: what DeepSpeedZeroOptimizer (runtime/zero/stage_1_and_2.py; 0.12.6,
/// 0.14.4 and 0.19.8, told apart by Behaviours) allocates on one rank, in its order and on its streams. The collectives
/// themselves work in place: nothing else of them is in PyTorch's allocator.
class DeepSpeedZeroOptimizer final : public DeepSpeedTrainer, private GradientListener {
 public:
  DeepSpeedZeroOptimizer(Context& context, Model& model, const TrainingConfig& training, const ParallelConfig& parallel,
                         std::int64_t usable_bytes);
  ~DeepSpeedZeroOptimizer() override;

  void initialize() override;
  void step() override;
  std::optional<std::vector<Tensor*>> left_by_backward() override;

  std::int64_t rank() const override { return rank_; }
  /// Each has other parameters' gradients in its partitions.
  std::vector<std::int64_t> ranks_that_differ() const override;

 private:
  /// Gradients of this rank's partition, as the list of tensors that `flatten` joins: whole gradients, or the part of
  /// one at the partition's ends, and zeros behind the last.
  struct GradientList {
    TensorList tensors;
    std::vector<std::int64_t> counts;

    bool empty() const { return tensors.empty() || !tensors.front(); }
    void release();
  };
  struct Group {
    std::vector<Parameter> parameters;
    FlatLayout layout;
    Tensor flat;             ///< bit16_groups_flat: the parameters are views of it
    Tensor master;           ///< single_partition_of_fp32_groups
    TensorList accumulated;  ///< all_grad_tensors: whole gradients since the last step
    GradientList averaged;   ///< averaged_gradients
  };
  struct Place {
    std::size_t group, index;
  };

  void gradient_ready(const Tensor& parameter) override;
  bool is_post_accumulate() const override { return context_.behaviours.zero_post_accumulate_hooks; }
  void add_to_bucket(const Place& place);

  // initialisation
  void flatten(Group& group);
  void make_master(Group& group);
  void initialize_optimizer_states();
  void make_offload_buffer();

  // backward
  void backward_prologue() override { allocate_buckets(); }
  void backward_epilogue(bool last_micro_step) override;
  void allocate_buckets();
  void average(const Tensor& bucket);
  void reduce_bucket();
  void clear_reduced();
  void keep_gradient(const Place& place);
  void offload_gradient(const Place& place);
  GradientList flat_partition(const Group& group, const TensorList& gradients);
  TensorList partition_gradients(const Group& group);

  // step
  void has_inf_or_nan(const Tensor& x);
  void check_overflow();
  Tensor group_norm(const Group& group);
  Tensor global_norm();
  void gather_partitions();
  void step_group(std::size_t index, const Tensor& norm);

  std::uint8_t reduction_stream() const;
  Parameter& parameter(const Place& place) { return groups_[place.group].parameters[place.index]; }

  bool partitions_gradients_;  ///< stage 2
  std::int64_t usable_bytes_, rank_ = 0;
  std::optional<std::int64_t> wanted_rank_;
  std::vector<Group> groups_;
  std::vector<Place> places_;  ///< by TensorImpl::index

  // the IPG ("independent parallel gradients") bucket
  TensorList buckets_;
  std::size_t bucket_ = 0;
  std::int64_t bucket_elements_ = 0;
  std::vector<Place> bucket_places_;
  std::vector<Place> reduced_;  ///< previous_reduced_grads
  bool extra_large_ = false;    ///< it holds one gradient larger than itself
  Tensor grads_in_partition_;

  Tensor offload_buffer_;  ///< with the optimizer in host memory
};

}  // namespace oometer
