#pragma once

#include <cstdint>
#include <vector>

#include "train/loops/hf_trainer.h"

namespace oometer {

/// trl.experimental.orpo.ORPOTrainer of 1.16 (experimental/orpo/orpo_trainer.py), of a decoder: its model makes logits.
class OrpoTrainer : public HfTrainer {
 public:
  using HfTrainer::HfTrainer;

 private:
  /// What the collator gives, in place of input_ids: ModelInputs::others.
  enum Other : std::uint8_t {
    kChosenInputIds,
    kChosenAttentionMask,
    kChosenLabels,
    kRejectedInputIds,
    kRejectedAttentionMask,
    kRejectedLabels,
    kPromptInputIds,
    kPromptAttentionMask
  };
  struct Forward {
    Tensor chosen_logps, rejected_logps, chosen_logits, rejected_logits, nll_loss;
  };

  ModelInputs make_batch() override;
  Tensor compute_loss(ModelInputs batch, const Tensor& num_items_in_batch, ModelOutputs* returned) override;
  Prediction prediction_step(const ModelInputs& inputs, bool prediction_loss_only) override;
  Forward concatenated_forward(const ModelInputs& batch);
};

}  // namespace oometer
