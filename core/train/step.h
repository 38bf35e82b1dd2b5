#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "models/model.h"
#include "result.h"
#include "tensor/context.h"
#include "tensor/host_memory.h"
#include "tensor/tensor_list.h"
#include "train/config.h"
#include "train/objectives/objective.h"
#include "train/optimizer.h"

/// One training run: the model built, two iterations as in reality (the first creates the optimizer's states).
namespace oometer {

/// What a step does around the model: the place where data-parallel strategies step in. The default is a single
/// process: nothing is added, the optimizer is torch's.
class TrainingStrategy {
 public:
  TrainingStrategy(Context& context, Model& model, const TrainingConfig& training)
      : context_(context), model_(model), training_(training) {}
  virtual ~TrainingStrategy() = default;

  /// The model stands on the device; its wrapper and the optimizer are made.
  virtual void initialize();
  /// Accelerator.prepare(optimizer)
  void prepare_optimizer() {
    if (!refusal_) optimizer_->prepare();
  }
  /// The wrapper's forward begins, and ends.
  virtual void before_forward([[maybe_unused]] ModelInputs& inputs, [[maybe_unused]] bool last_micro_step) {}
  virtual void after_forward([[maybe_unused]] ModelOutputs& outputs) {}
  /// The type to which the wrapper casts all numbers that the model is called with.
  virtual std::optional<DType> arguments_dtype() const { return std::nullopt; }
  /// An evaluation calls the wrapper, too, not the model in it.
  virtual bool wraps_evaluation() const { return false; }
  /// accelerate runs the model's forward under autocast, where the precision says so.
  virtual bool autocasts() const { return true; }
  /// loss.backward(), or the engine's.
  virtual void backward(const Tensor& loss, bool last_micro_step);
  /// The training loop divides the loss by the accumulation steps; otherwise `backward` does, unless `scale_wrt_gas` is
  /// off, as HF Trainer has it, whose loss is a sum over all of them.
  virtual bool divides_loss() const { return true; }
  bool scale_wrt_gas = true;
  /// What a checkpoint makes of the model's weights, on the device.
  virtual void save();
  /// Clipping, the optimizer's step, zero_grad.
  virtual void step();
  /// What clipping has found, where somebody holds on to it: HF Trainer, from one step to the next.
  struct GradNorm {
    bool is_held = false;
    Tensor value;
  } grad_norm;
  /// The handles that hold what an iteration's backward has left, all of it, until `step` empties them: a Repetition
  /// fills them again. None where more is kept than handles can tell.
  virtual std::optional<std::vector<Tensor*>> left_by_backward();

  /// The processes that train together, a GPU each.
  virtual std::int64_t world_size() const { return 1; }
  /// Whose run this is.
  virtual std::int64_t rank() const { return 0; }
  /// The ranks whose runs can differ in bytes, one of each kind where they are many; none where all are alike, or where
  /// the job names one. Known after `initialize`.
  virtual std::vector<std::int64_t> ranks_that_differ() const { return {}; }

  /// What a rank keeps in host memory because it was offloaded.
  HostMemory host_memory() const {
    HostMemory all = host_;
    if (optimizer_) all.keep(HostPart::optimizer_states, optimizer_->host_bytes());
    return all;
  }
  /// Why the library would have stopped the run, if it would.
  const std::optional<Error>& refusal() const { return refusal_; }
  /// Whether PyTorch would have stopped: somebody refuses, and nothing that comes after has a meaning.
  bool stops() const { return refusal_ || model_.refusal || context_.refusal; }

 protected:
  /// torch.optim.swa_utils.AveragedModel: a deep copy of the model, and its update_parameters.
  void average_model();
  void update_averaged();

  Context& context_;
  Model& model_;
  const TrainingConfig& training_;
  std::unique_ptr<Optimizer> optimizer_;
  TensorList averaged_;  ///< AveragedModel's parameters and buffers
  std::int64_t n_averaged_ = 0;
  HostMemory host_;                     ///< without what the optimizer itself knows of
  Tensor grad_scale_, growth_tracker_;  ///< GradScaler's, amp-fp16 only
  std::optional<Error> refusal_;
};

DType weight_dtype(Precision precision);
/// The type that autocast computes in; none: there is no autocast.
std::optional<DType> autocast_dtype(Precision precision);

/// Why backward cannot begin where the loss needs no gradient.
Error nothing_to_train();

/// Runs the job's loop into the context's log: initialisation, and the steps. `data`: a full micro-batch.
/// `micro_batches`: all of them, in order; none: steps with the model's own. `evaluation`: a trainer's batches.
/// `reference`: the second model of a preference loop, if it has one.
void run_training(Context& context, Model& model, TrainingStrategy& strategy, const Objective& objective,
                  const TrainingConfig& training, const DataConfig& data,
                  const std::vector<DataConfig>& micro_batches = {}, const std::vector<DataConfig>& evaluation = {},
                  Model* reference = nullptr);

}  // namespace oometer
