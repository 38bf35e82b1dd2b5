#include "models/deepseek/mtla.h"

#include "ops/ops.h"
#include "ops/vision.h"
#include "rounding.h"

namespace oometer {

namespace {

/// HyperNetwork.forward: weights [b, rows * repeats, tokens] by which latents [b, tokens, c] are merged. Positions come
/// from the host.
Tensor merging_weights(const HyperNetwork& network, const Tensor& latents, std::int64_t rows, std::int64_t repeats) {
  Context& context = latents.context();
  ModuleCall call(context, network.module);
  const std::int64_t width = latents.size(2), tokens = latents.size(1);
  Tensor positions = empty(context, Op::to_copy, {1, rows, width}, DType::float32);
  positions = to(positions, latents.dtype());
  if (repeats > 1) {
    positions = empty(context, Op::repeat, {1, rows * repeats, width}, latents.dtype());
    positions = slice(positions, 1, 0, tokens);
  }
  const Tensor of_positions = network.fc_c(positions), of_latents = network.fc_p(latents);
  const Tensor wide = expand(of_positions, {latents.size(0), of_positions.size(1), of_positions.size(2)});
  const Tensor weights = bmm(wide, transpose(of_latents, 1, 2));
  return sigmoid(weights);
}

/// One of torch.einsum's products.
Tensor product(const Tensor& like, const Shape& sizes) {
  Tensor result = empty(like.context(), Op::bmm, sizes, like.dtype());
  const GemmWorkspace workspace(like.context());
  return result;
}

}  // namespace

AttentionOutputs attend_temporally(const DeepseekAttention& attention, const Tensor& hidden_states,
                                   const PositionEmbeddings& positions, KvCache& cache) {
  const DeepseekConfig& c = *attention.config;
  Context& context = hidden_states.context();
  const std::int64_t batch = hidden_states.size(0), length = hidden_states.size(1), heads = c.num_attention_heads;
  const Tensor q = attention.project_queries(hidden_states);
  TensorList queries = split(q, {c.qk_nope_head_dim, c.qk_rope_head_dim}, -1);
  const Tensor kv = attention.kv_a_proj_with_mqa(hidden_states);
  TensorList latents = split(kv, {c.kv_lora_rank, c.qk_rope_head_dim}, -1);
  const Tensor kv_norm = attention.kv_a_layernorm(latents[0]);
  // With cosines and sines each head turns a copy of the shared key; all are alike, the first one is kept.
  Tensor k_rep = unsqueeze(latents[1], 1);
  if (c.names->its.is_v3) k_rep = expand(k_rep, {batch, heads, length, c.qk_rope_head_dim});
  const DeepseekAttention::Rotated rotated = attention.turn(queries[1], k_rep, positions);
  const Tensor k_pe =
      c.names->its.is_v3 ? contiguous(select(rotated.k, 1, 0)) : view(rotated.k, {batch, length, c.qk_rope_head_dim});
  const std::int64_t stride = c.temporal_stride;
  Tensor w_tT, zero_mask, kv_norm_t, tricky_mask;
  KvCache::States states;
  if (cache.length(attention.layer_idx) == 0) {  // recompute_prompt_attn: the prompt attends as in training
    const std::int64_t rows = divide_up(length, stride);
    const Shape square{length, length};
    w_tT = merging_weights(attention.hypernet_down, kv_norm, rows, 1);
    if (length > 1) {
      w_tT = merging_weights(attention.hypernet_down, kv_norm, rows, stride);
      zero_mask = empty(context, Op::to_copy, square, DType::float32);
      zero_mask = to(zero_mask, kv_norm.dtype());
      {
        const Tensor masked = mul(w_tT, unsqueeze(zero_mask, 0));
        kv_norm_t = matmul(masked, kv_norm);
      }
    } else {
      kv_norm_t = mul(kv_norm, w_tT);
    }
    states = cache.update(attention.layer_idx, kv_norm_t, k_pe);
    if (length > 1) {
      states = {kv_norm_t, k_pe};
      tricky_mask = empty(context, Op::to_copy, square, DType::float32);
    }
  } else {
    w_tT = merging_weights(attention.hypernet_down, kv_norm, 1, 1);
    kv_norm_t = mul(kv_norm, w_tT);
    states = cache.update(attention.layer_idx, kv_norm_t, k_pe);
  }
  // kv_b_proj is absorbed: queries meet latents.
  const std::int64_t keys = states.keys.size(1);
  const Tensor q_nope_proj = product(q, {heads, batch * length, c.kv_lora_rank});
  Tensor scores;
  {
    Tensor of_latents, of_positions;
    {
      const Tensor by_sample = permute(view(q_nope_proj, {heads, batch, length, c.kv_lora_rank}), {1, 2, 0, 3});
      const Tensor rows = reshape(by_sample, {batch, length * heads, c.kv_lora_rank});
      of_latents = product(q, {batch, length * heads, keys});
    }
    {
      const Tensor rows = reshape(transpose(rotated.q, 1, 2), {batch, length * heads, c.qk_rope_head_dim});
      of_positions = product(q, {batch, length * heads, keys});
    }
    scores = add(of_latents, of_positions);
  }
  scores = mul_scalar(scores);
  if (tricky_mask) {
    const Tensor mask = to(tricky_mask, scores.dtype());
    scores = empty_like(Op::add, scores);
  }
  AttentionOutputs outputs;
  outputs.weights = softmax(scores, scores.dtype());
  Tensor x = product(q, {batch, length * heads, c.kv_lora_rank});
  x = product(q, {heads, batch * length, c.v_head_dim});
  const Tensor flat = reshape(transpose(x, 0, 1), {batch, length, heads * c.v_head_dim});
  outputs.output = attention.o_proj(flat);
  return outputs;
}

}  // namespace oometer
