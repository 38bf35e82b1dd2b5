#pragma once

#include <cstdint>

#include "models/loss_function.h"
#include "ops/chunked_log_probs.h"

namespace oometer {

struct ModelOutputs;
class TrainingStrategy;

/// What a model with TRL's fused head returns in place of logits; the fields are [b, s - 1], zero where the label is
/// -100.
struct FusedCausalLMOutput {
  Tensor loss, aux_loss, log_probs, entropy, mean_logits, is_top1;
  Tensor label_mask;  ///< whether the label is not -100
};

/// add_fused_lm_head (trl 1.16, trainer/utils.py): the head takes only the positions whose next label is not -100, and
/// makes no logits.
class FusedLmHead : public LossFunction {
 public:
  explicit FusedLmHead(const LogProbOutputs& outputs = {}) : outputs_(outputs) {}

  mutable FusedCausalLMOutput output;  ///< of the last forward, until it is taken

  Tensor operator()(const Tensor&, const Tensor&, const Tensor&) const override {
    return {};
  }  // it has the head inside
  Tensor of_hidden_states(const Tensor& hidden_states, const Linear& lm_head, const Tensor& labels) const override;
  bool replaces_forward() const override { return true; }

 private:
  LogProbOutputs outputs_;
};

/// A wrapper's forward ends around a model with such a head: `fused` is returned, of which `outputs` has the loss.
void after_fused_forward(TrainingStrategy& wrapper, FusedCausalLMOutput& fused, ModelOutputs& outputs);

}  // namespace oometer
