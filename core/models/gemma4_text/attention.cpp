#include "models/gemma4_text/attention.h"

#include <utility>

#include "models/kit/text_attention.h"
#include "models/llama/llama.h"
#include "nn/kv_cache.h"
#include "ops/ops.h"

namespace oometer {

Norm gemma4_norm(const Builder& parent, const char* name, const Gemma4TextConfig& c, std::int64_t size,
                 const LigerConfig& kernels) {
  return Norm(parent.child(name, c.names->rms_norm), norm_of(kernels, rms_norm_by_pow, liger_norm_apart), {size});
}
Norm gemma4_norm(const Builder& parent, const char* name, const Gemma4TextConfig& c, const LigerConfig& kernels) {
  return gemma4_norm(parent, name, c, c.hidden_size, kernels);
}

Norm norm_without_scale(const Builder& parent, const char* name, const Gemma4TextConfig& c) {
  Norm norm;
  norm.module = parent.child(name, c.names->rms_norm).module;
  norm.forward = rms_norm_by_pow;
  return norm;
}

Gemma4TextAttention::Gemma4TextAttention(const Builder& builder, const Gemma4TextConfig& c, const ModelOptions& options,
                                         std::size_t layer)
    : head_dim(c.head_dim_of(layer)),
      is_sliding(c.slides(layer)),
      is_kv_shared_layer(layer >= c.first_shared_layer()),
      store_full_length_kv(c.stores(layer)),
      projects_before_norms(c.projects_before_norms),
      call(attention_call(c, options)),
      layer_idx(layer),
      module(builder.module) {
  const std::int64_t width = c.num_attention_heads * head_dim, kv_width = c.key_value_heads_of(layer) * head_dim;
  q_proj = Linear(builder.child("q_proj", "Linear"), c.hidden_size, width, c.qkv_bias);
  q_norm = gemma4_norm(builder, "q_norm", c, head_dim, options.liger);
  const auto make_norms = [&] {
    k_norm = gemma4_norm(builder, "k_norm", c, head_dim, options.liger);
    v_norm = norm_without_scale(builder, "v_norm", c);
  };
  if (!is_kv_shared_layer) {
    if (!c.projects_before_norms) make_norms();
    k_proj = Linear(builder.child("k_proj", "Linear"), c.hidden_size, kv_width, c.qkv_bias);
    if (!c.attention_k_eq_v || is_sliding)
      v_proj = Linear(builder.child("v_proj", "Linear"), c.hidden_size, kv_width, c.qkv_bias);
    if (c.projects_before_norms) make_norms();
  }
  o_proj = Linear(builder.child("o_proj", "Linear"), width, c.hidden_size, c.output_bias);
}

AttentionOutputs Gemma4TextAttention::operator()(const Tensor& hidden_states, const PositionEmbeddings& positions,
                                                 const Tensor& attention_mask) const {
  ModuleCall self(hidden_states.context(), module);
  const auto viewed = [&](const Tensor& projected) {
    return view(projected, {projected.size(0), projected.size(1), projected.size(2) / head_dim, head_dim});
  };
  const auto apply_rotary_pos_emb = [&](const Tensor& x) {
    const Tensor cos = unsqueeze(positions.cos, 2), sin = unsqueeze(positions.sin, 2);
    return rotate(x, cos, sin);
  };
  AttentionInputs states;
  states.query = viewed(q_proj(hidden_states));
  states.query = q_norm(states.query);
  states.query = apply_rotary_pos_emb(states.query);
  states.query = transpose(states.query, 1, 2);
  SharedKeyValues::States* const shared =
      positions.shared_kv_states ? &positions.shared_kv_states->of(is_sliding) : nullptr;
  if (is_kv_shared_layer) {
    states.key = shared->key;
    states.value = shared->value;
  } else {
    states.key = viewed(k_proj(hidden_states));
    const auto project_values = [&] { return v_proj.weight ? viewed(v_proj(hidden_states)) : states.key; };
    if (!projects_before_norms) states.value = project_values();
    states.key = k_norm(states.key);
    states.key = apply_rotary_pos_emb(states.key);
    states.key = transpose(states.key, 1, 2);
    if (projects_before_norms) states.value = project_values();
    states.value = v_norm(states.value);
    states.value = transpose(states.value, 1, 2);
    if (KvCache* const cache = hidden_states.context().past_key_values) {
      KvCache::States cached = cache->update(layer_idx, states.key, states.value);
      states.key = std::move(cached.keys);
      states.value = std::move(cached.values);
    }
  }
  if (store_full_length_kv) *shared = {states.key, states.value};
  AttentionOutputs attention = attention_forward(call, states.query, states.key, states.value, attention_mask,
                                                 {positions.position_ids, positions.rows, positions.cu_seq_lens});
  const Shape& heads = attention.output.sizes();
  attention.output = reshape(attention.output, {heads[0], heads[1], checked_product(heads[2], heads[3])});
  attention.output = self.result(o_proj(attention.output));
  for (Tensor* name : {&states.query, &states.key, &states.value}) name->reset();  // as a frame lets its names go
  return attention;
}

}  // namespace oometer
