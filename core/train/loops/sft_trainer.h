#pragma once

#include <vector>

#include "train/loops/hf_trainer.h"
#include "train/objectives/fused_lm_head.h"

namespace oometer {

/// trl.SFTTrainer of 1.16 on one GPU (trainer/sft_trainer.py): HF Trainer with a fused head, and metrics beside the
/// loss.
class SftTrainer : public HfTrainer {
 public:
  SftTrainer(Context& context, Model& model, TrainingStrategy& strategy, const Objective& objective,
             const TrainingConfig& training, const DataConfig& data, const std::vector<DataConfig>& micro_batches,
             const std::vector<DataConfig>& evaluation);

 private:
  Tensor compute_loss(ModelInputs inputs, const Tensor& num_items_in_batch, ModelOutputs* returned) override;
  Prediction prediction_step(const ModelInputs& inputs, bool prediction_loss_only) override;
  void return_outputs(ModelOutputs& outputs) override;
  /// model(**inputs, fused_lm_head=True)
  FusedCausalLMOutput call_fused(const ModelInputs& inputs);
  /// model(**inputs) without labels
  ModelOutputs call_for_logits(ModelInputs inputs);
  void log_metrics(const FusedCausalLMOutput& outputs, const ModelInputs& inputs) const;

  FusedLmHead lm_head_{{.entropy = true, .is_top1 = true}};
};

}  // namespace oometer
