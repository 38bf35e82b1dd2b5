#pragma once

#include <cstdint>
#include <vector>

#include "train/loops/hf_trainer.h"

namespace oometer {

/// LLaMA-Factory's CustomKTOTrainer of 0.9.5 (train/kto/trainer.py), on trl 0.24's KTOTrainer. Of each micro-batch's
/// samples every other one is wanted.
class CustomKtoTrainer : public HfTrainer {
 public:
  /// `reference`: a model of its own, which outlives this; null: the policy without its adapters.
  CustomKtoTrainer(Context& context, Model& model, Model* reference, TrainingStrategy& strategy,
                   const Objective& objective, const TrainingConfig& training, const DataConfig& data,
                   const std::vector<DataConfig>& micro_batches, const std::vector<DataConfig>& evaluation);

 private:
  /// What the collator adds: ModelInputs::others.
  enum Other : std::uint8_t { kKlInputIds, kKlAttentionMask, kKlLabels, kKtoTags };
  /// The wanted samples', and the others'.
  struct Parts {
    Tensor chosen, rejected;
  };
  struct Forward {
    Tensor logits, logps, logps_avg;
  };
  struct Concatenated {
    Parts logps, logits;
    Tensor kl_logps, chosen_logps_avg;
  };
  struct Losses {
    Tensor losses, kl;
    Parts rewards;
  };

  ModelInputs make_batch() override;
  Tensor compute_loss(ModelInputs inputs, const Tensor& num_items_in_batch, ModelOutputs* returned) override;
  Forward forward(Model& model, const ModelInputs& batch, bool is_kl);
  Concatenated concatenated_forward(Model& model, const ModelInputs& batch);
  Losses kto_loss(const Concatenated& policy, const Parts& reference_logps, const Tensor& reference_kl_logps) const;

  Model* const reference_;
};

}  // namespace oometer
