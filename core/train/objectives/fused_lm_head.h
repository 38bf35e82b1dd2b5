#pragma once

#include <cstdint>

#include "models/loss_function.h"

namespace oometer {

/// What a model with TRL's fused head returns in place of logits; the fields are [b, s - 1], zero where the label is
/// -100.
struct FusedCausalLMOutput {
  Tensor loss, log_probs, entropy, is_top1;
  Tensor label_mask;  ///< whether the label is not -100
};

/// add_fused_lm_head (trl 1.16, trainer/utils.py): the head takes only the positions whose next label is not -100, and
/// makes no logits.
class FusedLmHead : public LossFunction {
 public:
  /// `with_metrics`: entropy and is_top1 are among its `outputs`.
  explicit FusedLmHead(bool with_metrics) : with_metrics_(with_metrics) {}

  std::int64_t scored = 0;             ///< labels of the next batch that are not -100, after the shift
  mutable FusedCausalLMOutput output;  ///< of the last forward, until it is taken

  Tensor operator()(const Tensor&, const Tensor&, const Tensor&) const override {
    return {};
  }  // it has the head inside
  Tensor of_hidden_states(const Tensor& hidden_states, const Linear& lm_head, const Tensor& labels) const override;

 private:
  bool with_metrics_;
};

}  // namespace oometer
