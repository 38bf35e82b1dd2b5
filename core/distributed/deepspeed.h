#pragma once

#include <cstdint>
#include <vector>

#include "distributed/config.h"
#include "tensor/tensor_list.h"
#include "train/step.h"

namespace oometer {

/// What ZeRO's stages share: DeepSpeedEngine.backward (runtime/engine.py), norms and clipping (runtime/utils.py);
/// 0.12.6, 0.14.4 and 0.19.8, told apart by Behaviours.
class DeepSpeedTrainer : public TrainingStrategy {
 public:
  DeepSpeedTrainer(Context& context, Model& model, const TrainingConfig& training, const ParallelConfig& parallel)
      : TrainingStrategy(context, model, training),
        config_(parallel.deepspeed),
        world_(parallel.world_size()),
        dtype_(config_.casts_weights ? weight_dtype(training.precision) : DType::float32) {}

  void backward(const Tensor& loss, bool last_micro_step) override;
  bool divides_loss() const override { return false; }
  void save() override {}  ///< Accelerator.get_state_dict: tensor by tensor to the host
  std::int64_t world_size() const override { return world_; }

 protected:
  bool offloads_optimizer() const { return config_.offloads_optimizer(); }
  /// Where neither bf16 nor fp16 is enabled, gradients are reduced and summed as float32: what trains must be that.
  [[gnu::noinline]] void refuse_half_gradients();

  /// Just before autograd runs, and after it.
  virtual void backward_prologue() {}
  virtual void backward_epilogue(bool last_micro_step) = 0;

  /// combine_grad_norm_groups (0.19.8; before it a plain norm) of the norms of `groups`, which are freed.
  Tensor combine_norms(std::vector<Tensor>& groups);
  /// unscale_and_clip_grads: scalars of the norm's type; the gradient itself is scaled in place.
  void unscale_and_clip(const Tensor& norm);

  /// torch.optim.Adagrad makes its states where it is made.
  bool has_states_at_once() const {
    return training_.optimizer.name == OptimizerName::adagrad && !offloads_optimizer();
  }
  /// Those of DeepSpeedEngine.basic_optimizer, which is made of the weights themselves and stays:
  /// initialize_optimizer_states makes a second Adagrad, of their parts.
  [[gnu::noinline]] TensorList states_of_basic_optimizer() const;

  DeepSpeedConfig config_;
  std::int64_t world_;
  DType dtype_;
  bool last_micro_step_ = true;
  TensorList states_of_whole_;
  Tensor losses_, global_grad_norm_;     ///< the engine's
  std::vector<Tensor> offloaded_norms_;  ///< norm_for_param_grads, with the optimizer in host memory
};

/// DeepSpeedEngine._configure_distributed_model: module.bfloat16() or .half(), which adapters in float32 feel; before
/// 0.16 buffers, too. Now those that the model's class names are float32 again (_cast_module_mixed_precision and
/// runtime/keep_in_fp32.py, keep_buffers_in_fp32, 0.19.8).
void cast_module(Context& context, const Model& model, DType dtype);
/// One element on the device.
Tensor scalar(Context& context, Op op, DType dtype);
/// torch.isfinite(x): (x == x) * (x.abs() != inf).
Tensor is_finite(const Tensor& x);
/// torch.isinf(x): x.abs() == inf.
Tensor is_infinite(const Tensor& x);

}  // namespace oometer
