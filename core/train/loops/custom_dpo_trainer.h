#pragma once

#include <vector>

#include "train/loops/hf_trainer.h"
#include "train/loops/pairs.h"

namespace oometer {

/// LLaMA-Factory's CustomDPOTrainer of 0.9.5 (train/dpo/trainer.py), on trl 0.24's DPOTrainer. A batch has the chosen
/// answers, then the rejected ones.
class CustomDpoTrainer : public HfTrainer {
 public:
  /// `reference`: a model of its own, which outlives this; null: the policy without its adapters, or none, as the loss
  /// says.
  CustomDpoTrainer(Context& context, Model& model, Model* reference, TrainingStrategy& strategy,
                   const Objective& objective, const TrainingConfig& training, const DataConfig& data,
                   const std::vector<DataConfig>& micro_batches, const std::vector<DataConfig>& evaluation);

 private:
  struct Forward {
    Pair logps, logits;
    Tensor chosen_logps_avg;
  };
  struct Losses {
    Tensor losses, chosen_rewards, rejected_rewards;
  };

  Tensor compute_loss(ModelInputs inputs, const Tensor& num_items_in_batch, ModelOutputs* returned) override;
  Forward concatenated_forward(Model& model, ModelInputs batch, bool is_ref_model);
  Pair compute_reference_log_probs(const ModelInputs& batch);
  Losses compute_preference_loss(const Pair& policy, const Pair& reference) const;
  static Losses dpo_loss(const Pair& policy, const Pair& reference);
  bool averages() const { return args_.loss_type == "ipo" || !args_.has_reference(); }

  Model* const reference_;
};

/// nested_detach(batch, clone=True) (train/trainer_utils.py).
ModelInputs nested_clone(ModelInputs batch);

}  // namespace oometer
