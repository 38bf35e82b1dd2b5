#pragma once

#include <vector>

#include "train/loops/hf_trainer.h"

namespace oometer {

/// trl.RewardTrainer of 1.16 (trainer/reward_trainer.py), of a model with one label. A batch has the chosen answers,
/// then the rejected ones.
class RewardTrainer : public HfTrainer {
 public:
  RewardTrainer(Context& context, Model& model, TrainingStrategy& strategy, const Objective& objective,
                const TrainingConfig& training, const DataConfig& data, const std::vector<DataConfig>& micro_batches,
                const std::vector<DataConfig>& evaluation);

 private:
  ModelInputs make_batch() override { return model_.make_inputs(false); }
  Tensor compute_loss(ModelInputs inputs, const Tensor& num_items_in_batch, ModelOutputs* returned) override;
};

}  // namespace oometer
