#include "models/wav2vec2/parts.h"

#include <algorithm>
#include <string>
#include <utility>

#include "nn/activation.h"
#include "ops/ctc_loss.h"
#include "ops/integers.h"
#include "ops/masks.h"
#include "ops/ops.h"
#include "ops/put_row.h"
#include "ops/vision.h"
#include "tensor/kernel.h"
#include "tensor/node.h"

namespace oometer {

Wav2Vec2FeedForward::Wav2Vec2FeedForward(const Builder& builder, std::int64_t hidden_size,
                                         std::int64_t intermediate_size, Activation activation,
                                         double activation_dropout, double hidden_dropout)
    : intermediate_dense(builder.child("intermediate_dense", "Linear"), hidden_size, intermediate_size, true),
      output_dense(builder.child("output_dense", "Linear"), intermediate_size, hidden_size, true),
      act_fn(activation),
      intermediate_dropout(activation_dropout),
      output_dropout(hidden_dropout),
      module(builder.module) {}

Tensor Wav2Vec2FeedForward::operator()(const Tensor& argument) const {
  ModuleCall call(argument.context(), module);
  Tensor hidden_states = intermediate_dense(call.argument(argument));
  hidden_states = activate(act_fn, hidden_states);
  hidden_states = dropout(hidden_states, intermediate_dropout);
  hidden_states = output_dense(hidden_states);
  return call.result(dropout(hidden_states, output_dropout));
}

std::int64_t spec_augmented_states(std::int64_t states, double mask_prob, std::int64_t mask_length,
                                   std::int64_t min_masks) {
  const auto drawn =
      static_cast<std::int64_t>(mask_prob * static_cast<double>(states) / static_cast<double>(mask_length) + 0.5);
  return std::min(std::max(drawn, min_masks), states / mask_length) * mask_length;
}

Tensor apply_spec_augment(const Tensor& hidden_states, const Tensor& masked_spec_embed, std::int64_t masked) {
  const std::int64_t batch = hidden_states.size(0), states = hidden_states.size(1);
  const Tensor mask_time_indices = empty(hidden_states.context(), Op::to_copy, {batch, states}, DType::boolean);
  const Tensor value = to(masked_spec_embed, hidden_states.dtype());
  return put_row_in_place(hidden_states, mask_time_indices, value, batch * masked);
}

Error too_few_states(std::int64_t least, std::int64_t samples) {
  const std::int64_t milliseconds = (samples + 15) / 16;
  const std::string digits = std::to_string(1000 + milliseconds % 1000);
  return {"inconsistent", "/data/audio_seconds",
          "found a clip of fewer states than the encoder takes (" + std::to_string(least) + "); expected " +
              std::to_string(milliseconds / 1000) + "." + digits.substr(1) + " s or more"};
}

Tensor for_ctc_loss(const Tensor& logits, const Tensor& labels, bool takes_mean, bool zero_infinity) {
  Context& context = logits.context();
  const Shape each = labels.sizes();
  const std::int64_t batch = each[0];
  Tensor log_probs, flattened_targets, target_lengths, labels_mask;
  {
    const Tensor is_label = empty(context, Op::ne, each, DType::boolean);
    const Tensor is_blank = empty(context, Op::ne, each, DType::boolean);
    labels_mask = empty(context, Op::bitwise_and, each, DType::boolean);
  }
  target_lengths = reduce(Op::sum, labels_mask, {1}, false, DType::int64);
  flattened_targets = index_mask(labels, labels_mask, labels.numel());
  {
    const Tensor wide = to(logits, DType::float32);
    log_probs = log_softmax(wide);
  }
  log_probs = transpose(log_probs, 0, 1);
  Tensor res = ctc_loss(log_probs, flattened_targets, each[1]);
  const auto floats = [&](Op op) { return empty(context, op, {batch}, DType::float32); };
  if (zero_infinity) {
    const Tensor zero = empty(context, Op::fill, {}, DType::float32);
    const Tensor is_infinite = empty(context, Op::eq, {batch}, DType::boolean);
    res = where(is_infinite, zero, res);
  }
  if (!takes_mean) return sum_all(res);
  Tensor lengths = floats(Op::to_copy);
  const Tensor least = floats(Op::clamp);
  lengths.reset();
  const Tensor of_each = div(res, least);
  return mean_all(of_each);
}

}  // namespace oometer
