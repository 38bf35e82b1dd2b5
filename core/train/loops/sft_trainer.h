#pragma once

#include <vector>

#include "train/loops/hf_trainer.h"
#include "train/objectives/chunked_nll.h"
#include "train/objectives/fused_lm_head.h"

namespace oometer {

/// trl.SFTTrainer (trainer/sft_trainer.py): HF Trainer with a fused head, or the model's own in older versions, and
/// metrics beside the loss.
class SftTrainer : public HfTrainer {
 public:
  SftTrainer(Context& context, Model& model, TrainingStrategy& strategy, const Objective& objective,
             const TrainingConfig& training, const DataConfig& data, const std::vector<DataConfig>& micro_batches,
             const std::vector<DataConfig>& evaluation);

 private:
  Tensor compute_loss(ModelInputs inputs, const Tensor& num_items_in_batch, ModelOutputs* returned) override;
  Prediction prediction_step(const ModelInputs& inputs, bool prediction_loss_only) override;
  FusedCausalLMOutput* fused_output() override { return &lm_head_.output; }
  /// model(**inputs, fused_lm_head=True)
  FusedCausalLMOutput call_fused(const ModelInputs& inputs);
  /// model(**inputs) without labels
  ModelOutputs call_for_logits(ModelInputs inputs);
  void log_metrics(const FusedCausalLMOutput& outputs, const ModelInputs& inputs) const;
  void log_tokens(const ModelInputs& inputs) const;
  /// compute_loss up to 1.14: the model's own loss, and metrics of its logits.
  Tensor loss_of_logits(ModelInputs inputs, const Tensor& num_items_in_batch, ModelOutputs* returned);
  void log_metrics_of_logits(const Tensor& logits, const Tensor& labels, const ModelInputs& inputs) const;

  /// The same where the loss is chunked_nll.
  Tensor loss_of_chunks(ModelInputs inputs, const Tensor& num_items_in_batch, ModelOutputs* returned);

  FusedLmHead lm_head_{{.entropy = true, .is_top1 = true}};
  ChunkedNll chunked_{args_.trl.chunked};
};

}  // namespace oometer
