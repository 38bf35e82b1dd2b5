#pragma once

#include "models/model.h"
#include "train/objectives/objective.h"

namespace oometer {

/// Two models in one run: DPOTrainer's loss_type="ipo" (TRL), of a policy and a frozen reference of it. The first half
/// of the batch are the chosen answers, the second half the rejected ones.
class PreferenceLoss : public Objective {
 public:
  /// `reference` outlives this.
  explicit PreferenceLoss(Model& reference) : reference_(reference) {}
  ModelInputs prepare(Model& policy) const override { return policy.make_inputs(true); }
  Tensor loss(const CallModel& policy, ModelInputs& batch) const override;

 private:
  Model& reference_;
};

}  // namespace oometer
