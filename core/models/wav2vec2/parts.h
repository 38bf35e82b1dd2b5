#pragma once

#include <cstdint>

#include "config/activation.h"
#include "nn/module.h"
#include "result.h"

/// What wav2vec 2.0's kin share (transformers 5.23): Wav2Vec2Bert's encoder is another, and its head the same.
namespace oometer {

/// Wav2Vec2FeedForward, Wav2Vec2BertFeedForward.
struct Wav2Vec2FeedForward {
  Wav2Vec2FeedForward() = default;
  Wav2Vec2FeedForward(const Builder& builder, std::int64_t hidden_size, std::int64_t intermediate_size,
                      Activation activation, double activation_dropout, double hidden_dropout);
  Tensor operator()(const Tensor& argument) const;

  Linear intermediate_dense, output_dense;
  Activation act_fn = Activation::gelu;
  double intermediate_dropout = 0, output_dropout = 0;
  ModuleId module = 0;
};

/// _compute_mask_indices: of a sample of so many states those that SpecAugment masks. How many spans there are is
/// chance, and whether they meet: this is the middle of the one, and none that do.
std::int64_t spec_augmented_states(std::int64_t states, double mask_prob, std::int64_t mask_length,
                                   std::int64_t min_masks);

/// _mask_hidden_states, in training, once the spans are drawn: hidden_states [b, s, h], of which so many a sample are
/// masked.
Tensor apply_spec_augment(const Tensor& hidden_states, const Tensor& masked_spec_embed, std::int64_t masked);

/// Of a clip that makes fewer states than `least`, which `samples` make.
Error too_few_states(std::int64_t least, std::int64_t samples);

/// ForCTCLoss (loss/loss_ctc.py). `takes_mean`: of the samples' losses, each by its labels; else their sum.
Tensor for_ctc_loss(const Tensor& logits, const Tensor& labels, bool takes_mean, bool zero_infinity);

}  // namespace oometer
