#pragma once

#include <vector>

#include "train/loops/hf_trainer.h"

namespace oometer {

/// LLaMA-Factory's PairwiseTrainer of 0.9.5 (train/rm/trainer.py), of a model with a value head. A batch has the chosen
/// answers, then the rejected ones.
class PairwiseTrainer : public HfTrainer {
 public:
  PairwiseTrainer(Context& context, Model& model, TrainingStrategy& strategy, const Objective& objective,
                  const TrainingConfig& training, const DataConfig& data, const std::vector<DataConfig>& micro_batches,
                  const std::vector<DataConfig>& evaluation);

 private:
  Tensor compute_loss(ModelInputs inputs, const Tensor& num_items_in_batch, ModelOutputs* returned) override;
};

}  // namespace oometer
