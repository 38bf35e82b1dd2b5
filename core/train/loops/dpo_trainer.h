#pragma once

#include <vector>

#include "train/loops/hf_trainer.h"
#include "train/loops/pairs.h"
#include "train/objectives/fused_lm_head.h"

namespace oometer {

/// trl.DPOTrainer of 1.16 on one GPU (trainer/dpo_trainer.py). A batch has the chosen answers, then the rejected ones.
class DpoTrainer : public HfTrainer {
 public:
  /// `reference`: a model of its own, which outlives this; null: the policy without its adapters, or what was computed
  /// before, as the arguments say.
  DpoTrainer(Context& context, Model& model, Model* reference, TrainingStrategy& strategy, const Objective& objective,
             const TrainingConfig& training, const DataConfig& data, const std::vector<DataConfig>& micro_batches,
             const std::vector<DataConfig>& evaluation);

 private:
  ModelInputs make_batch() override;
  Tensor compute_loss(ModelInputs inputs, const Tensor& num_items_in_batch, ModelOutputs* returned) override;
  FusedCausalLMOutput* fused_output() override { return &lm_head_.output; }
  Prediction prediction_step(const ModelInputs& inputs, bool prediction_loss_only) override;
  FusedCausalLMOutput call_fused(Model& model, FusedLmHead& lm_head, const ModelInputs& inputs);
  Tensor per_sequence_loss(const Pair& logratios, const Tensor& delta_score, const Tensor& per_token_logps,
                           const Tensor& completion_mask) const;
  void log_metrics(const FusedCausalLMOutput& outputs, const Pair& logps, const Pair& logratios,
                   const Tensor& completion_mask, const ModelInputs& inputs) const;

  Model* const reference_;
  FusedLmHead lm_head_{{.entropy = true, .mean_logits = true, .is_top1 = true}}, reference_head_;
};

}  // namespace oometer
