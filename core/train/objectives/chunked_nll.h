#pragma once

#include <cstdint>

#include "models/loss_function.h"
#include "runtime/trl_behaviours.h"

namespace oometer {

/// _patch_chunked_ce_lm_head (trl 1.4 - 1.14, trainer/sft_trainer.py): the head and its loss for 256 tokens at a time,
/// each a checkpointed region that also gives what SFTTrainer logs.
class ChunkedNll : public LossFunction {
 public:
  /// What a _ChunkedCELMHeadOutput has beside the loss, scalars.
  struct Counts {
    Tensor num_correct_tokens, entropy_sum, num_valid_tokens;
  };

  explicit ChunkedNll(ChunkedTokens tokens) : tokens_(tokens) {}

  mutable Counts counts;  ///< of the last forward, until they are taken

  Tensor operator()(const Tensor&, const Tensor&, const Tensor&) const override {
    return {};
  }  // it has the head inside
  Tensor of_hidden_states(const Tensor& hidden_states, const Linear& lm_head, const Tensor& labels) const override;

 private:
  ChunkedTokens tokens_;
};

}  // namespace oometer
