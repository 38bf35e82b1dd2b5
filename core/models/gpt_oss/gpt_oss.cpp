#include "models/gpt_oss/gpt_oss.h"

#include "ops/experts.h"
#include "ops/ops.h"
#include "ops/vision.h"

namespace oometer {

AttentionOutputs attend_with_sinks(const AttentionCall& call, const AttentionInputs& states, const Tensor& mask,
                                   const Tensor& sinks_in) {
  const Tensor& query = states.query;
  const std::int64_t heads = query.size(1);
  const Tensor key_states = repeat_kv(states.key, heads), value_states = repeat_kv(states.value, heads);
  Tensor weights = matmul(query, transpose(key_states, 2, 3));
  weights = mul_scalar(weights);
  if (mask) weights = add(weights, mask);
  const Tensor sinks = expand(reshape(sinks_in, {1, heads, 1, 1}), {query.size(0), heads, query.size(2), 1});
  Tensor combined_logits = cat({weights, sinks}, -1);
  {
    TopK largest = max(combined_logits);
    largest.indices.reset();
    Tensor shifted = sub(combined_logits, largest.values);
    largest.values.reset();
    combined_logits = std::move(shifted);
  }
  const Tensor probs = softmax(combined_logits, combined_logits.dtype());
  const Tensor scores = slice(probs, -1, 0, probs.size(-1) - 1);
  weights = to(dropout(scores, call.dropout), value_states.dtype());
  const Tensor output = matmul(weights, value_states);
  return {contiguous(transpose(output, 1, 2)), weights};
}

std::pair<Tensor, Tensor> rotate_chunks(const Tensor& q, const Tensor& k, const PositionEmbeddings& positions) {
  const Tensor cos = unsqueeze(positions.cos, 1), sin = unsqueeze(positions.sin, 1);
  const auto embed = [&](const Tensor& x) {
    const std::int64_t half = x.size(-1) / 2;
    const TensorList halves = split(x, {half, half}, -1);
    const auto combined = [&](Tensor (*join)(const Tensor&, const Tensor&), const Tensor& a, const Tensor& b) {
      const Tensor with_cos = mul(a, cos), with_sin = mul(b, sin);
      return join(with_cos, with_sin);
    };
    const Tensor first = combined(sub, halves[0], halves[1]), second = combined(add, halves[1], halves[0]);
    return cat({first, second}, -1);
  };
  Tensor q_embed = embed(q), k_embed = embed(k);
  return {std::move(q_embed), std::move(k_embed)};
}

PositionEmbeddings embed_half_positions(const LlamaRotaryEmbedding& rotary_emb, const Tensor& position_ids,
                                        DType dtype) {
  Context& context = position_ids.context();
  ModuleCall call(context, rotary_emb.module);
  const NoGrad no_grad(context);
  const Tensor freqs = rotary_angles(position_ids, rotary_emb.inv_freq);
  const auto scaled = [&](Op op) {
    const Tensor values = pointwise(op, {&freqs}, DType::float32);
    return mul_scalar(values);
  };
  const Tensor cos = scaled(Op::cos), sin = scaled(Op::sin);
  const Tensor cos_like_x = to(cos, dtype), sin_like_x = to(sin, dtype);
  return {call.result(cos_like_x), call.result(sin_like_x)};
}

Routing softmax_of_best(const Router& router, const Tensor& hidden_in) {
  ModuleCall call(hidden_in.context(), router.module);
  const Tensor hidden_states = call.argument(hidden_in);
  Routing routing;
  routing.router_logits = linear(hidden_states, router.weight, router.bias);
  TopK best = topk(routing.router_logits, router.top_k);
  routing.topk_weights = softmax(best.values, best.values.dtype());
  routing.topk_indices = std::move(best.indices);
  routing.router_logits = call.result(std::move(routing.router_logits));
  routing.topk_weights = call.result(std::move(routing.topk_weights));
  return routing;
}

Tensor clamped_gate(const Tensor& gate_up) {
  const std::int64_t half = gate_up.size(-1) / 2;
  const auto every_second = [&](std::int64_t first) {
    Tensor part = slice(gate_up, -1, first, half);
    part->strides[-1] *= 2;
    return part;
  };
  Tensor gate = every_second(0), up = every_second(1);
  gate = clamp(gate, false);
  up = clamp(up, true);
  Tensor glu;
  {
    Tensor share = mul_scalar(gate);
    share = sigmoid(share);
    glu = mul(gate, share);
  }
  const Tensor shifted = add_scalar(up);
  return mul(shifted, glu);
}

GptOssLayer::GptOssLayer(const Builder& builder, const TextConfig& c, const ModelOptions& options)
    : module_(builder.module) {
  AttentionParts its;
  its.rotate = rotate_chunks;
  its.with_sinks = attend_with_sinks;
  self_attn_ = TextAttention(builder.child("self_attn", c.names->attention), c, options, its);
  const Builder at = builder.child("mlp", c.names->mlp);
  mlp_module_ = at.module;
  const Builder router_at = at.child("router", "GptOssTopKRouter");
  router_ = Router(router_at, c, softmax_of_best);
  router_.bias = router_at.parameter("bias", {c.experts.num_experts});
  experts_ = make_experts(at, "GptOssExperts", c,
                          {.is_transposed = true,
                           .has_bias = true,
                           .checkpoint = {},
                           .apply_gate = clamped_gate,
                           .loop = ExpertsLoop::masks_experts});
  const auto norm = [&](const char* name) {
    return Norm(builder.child(name, c.names->rms_norm), norm_of(options.liger, rms_norm_float32), {c.hidden_size});
  };
  input_layernorm_ = norm("input_layernorm");
  post_attention_layernorm_ = norm("post_attention_layernorm");
}

Tensor GptOssLayer::mlp(const Tensor& argument, Tensor& scores) const {
  ModuleCall call(argument.context(), mlp_module_);
  const Tensor hidden_in = call.argument(argument);
  const std::int64_t hidden = hidden_in.size(-1);
  Tensor hidden_states = view(hidden_in, {hidden_in.numel() / hidden, hidden});
  const Routing routing = router_(hidden_states);
  hidden_states = experts_(hidden_states, routing.topk_indices, routing.topk_weights);
  Tensor result = call.result(view(hidden_states, hidden_in.sizes()));
  scores = routing.topk_weights;
  return result;
}

Tensor GptOssLayer::operator()(const Tensor& hidden_in, const PositionEmbeddings& positions,
                               const Tensor& attention_mask) const {
  const ModuleScope scope(hidden_in.context(), module_);
  Tensor residual = hidden_in;
  Tensor hidden_states = input_layernorm_(hidden_in);
  AttentionOutputs attention = self_attn_(hidden_states, positions, attention_mask);
  hidden_states = std::move(attention.output);
  hidden_states = add(residual, hidden_states);
  residual = hidden_states;
  hidden_states = post_attention_layernorm_(hidden_states);
  Tensor scores;  // the second `_`
  hidden_states = mlp(hidden_states, scores);
  attention.weights.reset();
  return add(residual, hidden_states);
}

}  // namespace oometer
