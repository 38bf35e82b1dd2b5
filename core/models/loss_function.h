#pragma once

#include <cstdint>

#include "nn/module.h"

namespace oometer {

/// The loss that a class has of its own, as transformers' LOSS_MAPPING (5.23, loss/loss_utils.py) names those of its
/// classes. `shifted`: written out in the class's forward, as in models up to 4.44. `contrastive`: of CLIP's pairs.
/// `mse`, `binary_cross_entropy`: ForSequenceClassificationLoss, of numbers and of several labels at once.
/// `masked_lm`: ForMaskedLMLoss, of logits in float32.
enum class LossType : std::uint8_t {
  none,
  causal_lm,
  shifted,
  cross_entropy,
  contrastive,
  mse,
  binary_cross_entropy,
  masked_lm
};

/// transformers' `self.loss_function`: what a class's forward calls, while its names are bound, and does not know.
class LossFunction {
 public:
  virtual ~LossFunction() = default;
  /// The keyword of that name, which classes of transformers 5 hand on: the loss is a sum, divided by it. Null: a mean.
  Tensor num_items_in_batch;
  /// Labels of the next batch that are not -100, after the shift, where a kernel leaves the others out; 0: all.
  std::int64_t scored = 0;
  bool wants_plain_head = false;  ///< it takes hidden states, scaled where the class scales its logits
  /// `labels`: null where the loss has none. `attention_mask`: where the class hands it on (LLaVA up to 4.51).
  virtual Tensor operator()(const Tensor& logits, const Tensor& labels, const Tensor& attention_mask = {}) const = 0;
  /// The same with the head inside, for a kernel that makes no logits (Liger's). Null: it wants logits.
  virtual Tensor of_hidden_states([[maybe_unused]] const Tensor& hidden_states, [[maybe_unused]] const Linear& lm_head,
                                  [[maybe_unused]] const Tensor& labels) const {
    return {};
  }
  /// It stands for all that the class's forward does behind its decoder (TRL's fused head).
  virtual bool replaces_forward() const { return false; }
};

}  // namespace oometer
