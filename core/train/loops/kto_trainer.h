#pragma once

#include <cstdint>
#include <vector>

#include "train/loops/hf_trainer.h"
#include "train/objectives/fused_lm_head.h"

namespace oometer {

/// trl.KTOTrainer of 1.16 on one GPU (trainer/kto_trainer.py). Of each micro-batch's samples every other one is wanted.
class KtoTrainer : public HfTrainer {
 public:
  /// `reference`: a model of its own, which outlives this; null: the policy without its adapters, or what was computed
  /// before, as the arguments say.
  KtoTrainer(Context& context, Model& model, Model* reference, TrainingStrategy& strategy, const Objective& objective,
             const TrainingConfig& training, const DataConfig& data, const std::vector<DataConfig>& micro_batches,
             const std::vector<DataConfig>& evaluation);

 private:
  /// What the collator adds: ModelInputs::others.
  enum Other : std::uint8_t {
    kKlInputIds,
    kKlAttentionMask,
    kKlCompletionMask,
    kKlTypes,
    kLabel,
    kRefLogps,
    kRefKlLogps
  };
  /// index_select of the wanted samples, and of the others.
  struct Parts {
    Tensor chosen, rejected;
  };

  ModelInputs make_batch() override;
  Tensor compute_loss(ModelInputs inputs, const Tensor& num_items_in_batch, ModelOutputs* returned) override;
  FusedCausalLMOutput* fused_output() override { return &lm_head_.output; }
  Prediction prediction_step(const ModelInputs& inputs, bool prediction_loss_only) override;
  DataConfig mismatched() const;
  bool calculates_kl() const { return args_.loss_type != "apo_zero_unpaired"; }
  FusedCausalLMOutput call_fused(Model& model, const DataConfig& batch, const ModelInputs& inputs);
  Tensor compute_kl_logps(Model& model, const ModelInputs& batch);
  void log_metrics(const FusedCausalLMOutput& outputs, const Parts& indices, const Parts& logps, const Parts& rewards,
                   const Parts& counts, const ModelInputs& batch) const;

  Model* const reference_;
  FusedLmHead lm_head_{{.entropy = true, .mean_logits = true}}, reference_head_;
};

}  // namespace oometer
