#pragma once

#include <functional>
#include <memory>

#include "models/loss_function.h"
#include "models/model.h"
#include "train/config.h"

namespace oometer {

/// The model as the loop calls it, with what its wrapper does before and after. The loop holds what comes back until
/// the forward pass is over; nothing comes where the wrapper or the model refuses.
using CallModel = std::function<const ModelOutputs&(ModelInputs&)>;

/// What a run minimises: makes the batch, calls the model, gives the loss.
class Objective {
 public:
  virtual ~Objective() = default;
  /// What the model has for its `self.loss_function`; null: none.
  virtual LossFunction* loss_function() const { return nullptr; }
  /// The batch on the device, as the data collator made it.
  virtual ModelInputs prepare(Model& model) const = 0;
  /// compute_loss (HF Trainer), or a loop's own lines. Null where the model gave nothing.
  virtual Tensor loss(const CallModel& model, ModelInputs& batch) const = 0;
};

/// What the job asks for, of a class whose own loss is `own`.
std::unique_ptr<Objective> make_objective(const TrainingConfig& training, LossType own);

}  // namespace oometer
