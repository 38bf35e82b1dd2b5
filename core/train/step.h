#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "models/model.h"
#include "result.h"
#include "tensor/context.h"
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
  /// The wrapper's forward begins, and ends.
  virtual void before_forward([[maybe_unused]] ModelInputs& inputs, [[maybe_unused]] bool last_micro_step) {}
  virtual void after_forward([[maybe_unused]] ModelOutputs& outputs) {}
  /// loss.backward(), or the engine's.
  virtual void backward(const Tensor& loss, bool last_micro_step);
  /// The training loop divides the loss by the accumulation steps; otherwise `backward` does.
  virtual bool divides_loss() const { return true; }
  /// Clipping, the optimizer's step, zero_grad.
  virtual void step();
  /// The handles that hold what an iteration's backward has left, all of it, until `step` empties them: a Repetition
  /// fills them again. None where more is kept than handles can tell.
  virtual std::optional<std::vector<Tensor*>> left_by_backward();

  /// Whose run this is.
  virtual std::int64_t rank() const { return 0; }
  /// The ranks whose runs can differ in bytes, one of each kind where they are many; none where all are alike, or where
  /// the job names one. Known after `initialize`.
  virtual std::vector<std::int64_t> ranks_that_differ() const { return {}; }

  /// What a rank keeps in host memory because it was offloaded.
  virtual std::int64_t host_bytes() const { return optimizer_ ? optimizer_->paged_bytes() : 0; }
  /// Why the library would have stopped the run, if it would.
  const std::optional<Error>& refusal() const { return refusal_; }

 protected:
  Context& context_;
  Model& model_;
  const TrainingConfig& training_;
  std::unique_ptr<Optimizer> optimizer_;
  Tensor grad_scale_, growth_tracker_;  ///< GradScaler's, amp-fp16 only
  std::optional<Error> refusal_;
};

DType weight_dtype(Precision precision);
/// The type that autocast computes in; meaningful for the amp precisions.
bool uses_autocast(Precision precision);

/// Runs initialisation and the steps into the context's log. `micro_batches`: all of them, in order; none: two steps
/// with one batch, the model's own.
void run_training(Context& context, Model& model, TrainingStrategy& strategy, const Objective& objective,
                  const TrainingConfig& training, const std::vector<DataConfig>& micro_batches = {});

}  // namespace oometer
