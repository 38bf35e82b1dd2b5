#include "models/olmo2/olmo2.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "models/kit/decoder.h"
#include "nn/attention.h"
#include "nn/kv_cache.h"
#include "ops/ops.h"

namespace oometer {

namespace {

// Olmo2RMSNorm.forward: Llama's, but the weight is multiplied in float32, before the cast.
Tensor normalize(const LlamaRMSNorm& norm, const Tensor& argument) {
  ModuleCall call(argument.context(), norm.module);
  const Tensor hidden_in = call.argument(argument);
  Tensor hidden_states = to(hidden_in, DType::float32);
  Tensor variance = pow(hidden_states, 2);
  variance = mean(variance, -1, true);
  Tensor scale = add_scalar(variance);
  scale = rsqrt(scale);
  hidden_states = mul(hidden_states, scale);
  scale.reset();
  const Tensor weighted = mul(norm.weight, hidden_states);
  return call.result(to(weighted, hidden_in.dtype()));
}

// Olmo2RotaryEmbedding.forward: cos and sin stay in float32.
PositionEmbeddings embed_positions(const LlamaRotaryEmbedding& rotary_emb, const Tensor& position_ids) {
  Context& context = position_ids.context();
  ModuleCall call(context, rotary_emb.module);
  const NoGrad no_grad(context);
  const Tensor freqs = rotary_angles(position_ids, rotary_emb.inv_freq);
  const Tensor emb = cat({freqs, freqs}, -1);
  const auto scaled = [&](Op op) {
    const Tensor values = pointwise(op, {&emb}, DType::float32);
    return mul_scalar(values);
  };
  const Tensor cos = scaled(Op::cos), sin = scaled(Op::sin);
  return {call.result(cos), call.result(sin)};
}

std::pair<Tensor, Tensor> apply_rotary_pos_emb(const Tensor& q, const Tensor& k, const PositionEmbeddings& positions) {
  const Tensor cos = unsqueeze(positions.cos, 1), sin = unsqueeze(positions.sin, 1);
  const Tensor q_embed = rotate(q, cos, sin), k_embed = rotate(k, cos, sin);
  return {to(q_embed, q.dtype()), to(k_embed, k.dtype())};
}

}  // namespace

Olmo2Attention::Olmo2Attention(const Builder& builder, const LlamaConfig& config, const ModelOptions& options)
    : head_dim(config.head_dim),
      call{options.attention, true, config.attention_dropout},
      layer_idx(static_cast<std::size_t>(
          std::max(0, builder.context->log.modules[builder.context->log.modules[builder.module].parent].index))),
      module(builder.module) {
  const std::int64_t width = config.num_attention_heads * head_dim, kv_width = config.num_key_value_heads * head_dim;
  q_proj = Linear(builder.child("q_proj", "Linear"), config.hidden_size, width, config.qkv_bias);
  k_proj = Linear(builder.child("k_proj", "Linear"), config.hidden_size, kv_width, config.qkv_bias);
  v_proj = Linear(builder.child("v_proj", "Linear"), config.hidden_size, kv_width, config.qkv_bias);
  o_proj = Linear(builder.child("o_proj", "Linear"), width, config.hidden_size, config.output_bias);
  q_norm = LlamaRMSNorm(builder.child("q_norm", config.names->rms_norm), width);
  k_norm = LlamaRMSNorm(builder.child("k_norm", config.names->rms_norm), kv_width);
}

AttentionOutputs Olmo2Attention::operator()(const Tensor& hidden_states, const PositionEmbeddings& positions,
                                            const Tensor& attention_mask) const {
  ModuleCall self(hidden_states.context(), module);
  Tensor query_states = normalize(q_norm, q_proj(hidden_states)), key_states = normalize(k_norm, k_proj(hidden_states)),
         value_states = v_proj(hidden_states);
  for (Tensor* states : {&query_states, &key_states, &value_states}) *states = heads_of(*states, head_dim);
  std::tie(query_states, key_states) = apply_rotary_pos_emb(query_states, key_states, positions);
  if (KvCache* const cache = hidden_states.context().past_key_values) {
    KvCache::States states = cache->update(layer_idx, key_states, value_states);
    key_states = std::move(states.keys);
    value_states = std::move(states.values);
  }
  AttentionOutputs attention = attention_forward(call, query_states, key_states, value_states, attention_mask,
                                                 {positions.position_ids, positions.rows, positions.cu_seq_lens});
  const Shape& heads = attention.output.sizes();
  attention.output = reshape(attention.output, {heads[0], heads[1], checked_product(heads[2], heads[3])});
  attention.output = self.result(o_proj(attention.output));
  return attention;
}

Olmo2DecoderLayer::Olmo2DecoderLayer(const Builder& builder, const LlamaConfig& config, const ModelOptions& options)
    : self_attn_(builder.child("self_attn", config.names->attention), config, options),
      mlp_(builder.child("mlp", config.names->mlp), config),
      post_attention_layernorm_(builder.child("post_attention_layernorm", config.names->rms_norm), config.hidden_size),
      post_feedforward_layernorm_(builder.child("post_feedforward_layernorm", config.names->rms_norm),
                                  config.hidden_size),
      module_(builder.module) {}

Tensor Olmo2DecoderLayer::operator()(const Tensor& hidden_in, const PositionEmbeddings& positions,
                                     const Tensor& attention_mask) const {
  const ModuleScope scope(hidden_in.context(), module_);
  Tensor residual = hidden_in;
  AttentionOutputs attention = self_attn_(hidden_in, positions, attention_mask);
  Tensor hidden_states = std::move(attention.output);  // the weights stay in `_` until the layer returns
  hidden_states = normalize(post_attention_layernorm_, hidden_states);
  hidden_states = add(residual, hidden_states);
  residual = hidden_states;
  hidden_states = mlp_(hidden_states);
  hidden_states = normalize(post_feedforward_layernorm_, hidden_states);
  return add(residual, hidden_states);
}

std::unique_ptr<Model> build_olmo2(Context& context, const LlamaConfig& config, const DataConfig& data,
                                   const ModelOptions& options) {
  DecoderParts parts;
  parts.layer = [config, options](const Builder& layer, std::size_t) {
    return std::make_unique<Olmo2DecoderLayer>(layer, config, options);
  };
  parts.rotary = embed_positions;
  parts.norm = normalize;
  return std::make_unique<CausalLM>(context, config, data, options, std::move(parts));
}

}  // namespace oometer
