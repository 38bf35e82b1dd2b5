#include "models/kit/position_bias.h"

#include "ops/masks.h"
#include "ops/ops.h"

namespace oometer {

Tensor position_bias_mask(const AttentionCall& call, const Tensor& position_bias, const Tensor& attention_mask) {
  if (!attention_mask && !call.causal) return contiguous(position_bias);
  Context& context = position_bias.context();
  const std::int64_t queries = position_bias.size(2), keys = position_bias.size(3);
  Tensor causal_mask = attention_mask;
  if (!causal_mask) {
    const Tensor query = empty(context, Op::arange, {queries}, DType::int64),
                 key = empty(context, Op::arange, {keys}, DType::int64);
    causal_mask = empty(context, Op::ge, {1, 1, queries, keys}, DType::boolean);
  }
  const Tensor masked = [&] {
    const Tensor minimum = empty(context, Op::full_like, {}, position_bias.dtype());
    return where(causal_mask, position_bias, minimum);
  }();
  return contiguous(masked);  // it lies in memory as the bias does
}

namespace {

AttentionOutputs eager(const AttentionCall& call, const AttentionInputs& states, const Tensor& mask,
                       const Tensor& position_bias) {
  const Context& context = states.query.context();
  Tensor attn_weights = matmul(states.query, transpose(states.key, 2, 3));
  attn_weights = mul_scalar(attn_weights);
  attn_weights = add(attn_weights, position_bias);
  if (mask) attn_weights = add(attn_weights, mask);
  attn_weights = softmax(attn_weights, context.autocast.enabled ? DType::float32 : attn_weights.dtype());
  attn_weights = dropout(attn_weights, call.dropout);
  const Tensor attn_output = matmul(attn_weights, states.value);
  return {contiguous(transpose(attn_output, 1, 2)), attn_weights};
}

}  // namespace

AttentionOutputs attend_with_bias(const AttentionCall& call, const AttentionInputs& states, const Tensor& mask,
                                  const Tensor& position_bias) {
  if (call.kind == AttentionKind::eager) return eager(call, states, mask, position_bias);
  AttentionCall biased = call;
  biased.causal = false;
  return attention_forward(biased, states.query, states.key, states.value,
                           position_bias_mask(call, position_bias, mask));
}

}  // namespace oometer
