#pragma once

#include <cstdint>
#include <vector>

#include "distributed/config.h"
#include "tensor/tensor_list.h"
#include "train/step.h"

namespace oometer {

/// Training under torch.nn.parallel.DistributedDataParallel: what the wrapper and its Reducer allocate on a rank (2.15:
/// nn/parallel/distributed.py; torch/csrc/distributed/c10d/reducer.cpp). All ranks do the same. The collectives
/// themselves work in place: nothing else of them is in PyTorch's allocator.
class DistributedDataParallel final : public TrainingStrategy, private GradientListener {
 public:
  DistributedDataParallel(Context& context, Model& model, const TrainingConfig& training, const DdpConfig& config,
                          std::int64_t world);
  ~DistributedDataParallel() override;

  void initialize() override;
  void before_forward(ModelInputs& inputs, bool last_micro_step) override;
  void after_forward(ModelOutputs& outputs) override;
  void backward(const Tensor& loss, bool last_micro_step) override;
  std::int64_t world_size() const override { return world_; }

 private:
  /// Indices of parameters.
  using Indices = std::vector<std::size_t>;

  void gradient_ready(const Tensor& parameter) override;

  std::vector<std::int64_t> bucket_limits() const;
  void initialize_buckets(const std::vector<Indices>& assignment);
  void release_buckets();
  void rebuild_buckets();
  void mark_ready(std::size_t index);

  const DdpConfig& config_;
  const std::int64_t world_;
  std::vector<Parameter> parameters_;  ///< that want gradients
  struct Bucket {
    Indices parameters;
    Tensor contents;        ///< their gradients end to end
    Indices waiting;        ///< batched_grad_copy: whose gradients are there and not copied yet
    std::size_t ready = 0;  ///< parameters whose gradients are there, in this backward
  };
  void allocate(Bucket& bucket);
  void reduce(Bucket& bucket);

  std::vector<Bucket> buckets_;
  std::vector<std::size_t> bucket_of_;  ///< by parameter
  Indices arrived_;                     ///< rebuilt_param_indices_: parameters as their gradients came, the first time
  Tensor local_used_map_;
  bool has_rebuilt_ = false;
  bool syncs_buffers_ = true;  ///< require_forward_param_sync
  bool reduces_ = false;       ///< this backward ends in a reduction: not under no_sync()
  bool static_graph_known_ = false;
};

}  // namespace oometer
