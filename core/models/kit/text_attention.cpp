#include "models/kit/text_attention.h"

#include <algorithm>
#include <tuple>

#include "models/llama/llama.h"
#include "nn/kv_cache.h"
#include "ops/liger.h"
#include "ops/ops.h"

namespace oometer {

namespace {

struct Tables {
  Tensor cos, sin;
};
Tables unsqueezed(const PositionEmbeddings& positions) {
  return {unsqueeze(positions.cos, 1), unsqueeze(positions.sin, 1)};
}

/// cos[..., : cos.shape[-1] // 2].repeat_interleave(2, dim=-1)
void spread(Tables& tables) {
  for (Tensor* table : {&tables.cos, &tables.sin}) {
    const Shape& sizes = table->sizes();
    *table = empty(table->context(), Op::clone, sizes, table->dtype());
  }
}

Tensor first_of(const Tensor& x, std::int64_t elements) { return slice(x, -1, 0, elements); }
Tensor rest_of(const Tensor& x, std::int64_t elements) { return slice(x, -1, elements, x.size(-1) - elements); }

std::pair<Tensor, Tensor> rotate_first_with(const Tensor& q, const Tensor& k, const Tables& tables) {
  const std::int64_t rotary_dim = tables.cos.size(-1);
  const Tensor q_rot = first_of(q, rotary_dim), q_pass = rest_of(q, rotary_dim);
  const Tensor k_rot = first_of(k, rotary_dim), k_pass = rest_of(k, rotary_dim);
  Tensor q_embed = rotate(q_rot, tables.cos, tables.sin), k_embed = rotate(k_rot, tables.cos, tables.sin);
  q_embed = cat({q_embed, q_pass}, -1);
  k_embed = cat({k_embed, k_pass}, -1);
  return {q_embed, k_embed};
}

}  // namespace

std::pair<Tensor, Tensor> rotate_halves(const Tensor& q, const Tensor& k, const PositionEmbeddings& positions) {
  const Tables tables = unsqueezed(positions);
  Tensor q_embed = rotate(q, tables.cos, tables.sin), k_embed = rotate(k, tables.cos, tables.sin);
  return {std::move(q_embed), std::move(k_embed)};
}

std::pair<Tensor, Tensor> rotate_float32(const Tensor& q, const Tensor& k, const PositionEmbeddings& positions) {
  const Tables tables = unsqueezed(positions);
  const Tensor q_embed = rotate(q, tables.cos, tables.sin), k_embed = rotate(k, tables.cos, tables.sin);
  return {to(q_embed, q.dtype()), to(k_embed, k.dtype())};
}

std::pair<Tensor, Tensor> rotate_first(const Tensor& q, const Tensor& k, const PositionEmbeddings& positions) {
  const Tables tables = unsqueezed(positions);
  const std::int64_t rotary_dim = tables.cos.size(-1);
  const Tensor q_rot = first_of(q, rotary_dim), q_pass = rest_of(q, rotary_dim);
  const Tensor k_rot = first_of(k, rotary_dim), k_pass = rest_of(k, rotary_dim);
  const auto embed = [&](const Tensor& rot, const Tensor& pass) {
    const Tensor turned = rotate(rot, tables.cos, tables.sin);
    return cat({turned, pass}, -1);
  };
  Tensor q_embed = embed(q_rot, q_pass), k_embed = embed(k_rot, k_pass);
  return {std::move(q_embed), std::move(k_embed)};
}

std::pair<Tensor, Tensor> rotate_pairs(const Tensor& q, const Tensor& k, const PositionEmbeddings& positions) {
  Tables tables = unsqueezed(positions);
  spread(tables);
  Tensor q_embed = rotate(q, tables.cos, tables.sin), k_embed = rotate(k, tables.cos, tables.sin);
  return {std::move(q_embed), std::move(k_embed)};
}

std::pair<Tensor, Tensor> rotate_first_pairs(const Tensor& q, const Tensor& k, const PositionEmbeddings& positions) {
  Tables tables = unsqueezed(positions);
  spread(tables);
  return rotate_first_with(q, k, tables);
}

std::pair<Tensor, Tensor> rotate_first_halves(const Tensor& q, const Tensor& k, const PositionEmbeddings& positions) {
  return rotate_first_with(q, k, unsqueezed(positions));
}

std::pair<Tensor, Tensor> rotate_first_joined(const Tensor& q, const Tensor& k, const PositionEmbeddings& positions) {
  const Tables tables = unsqueezed(positions);
  const std::int64_t rotary_dim = tables.cos.size(-1);
  const Tensor q_rot = first_of(q, rotary_dim), q_pass = rest_of(q, rotary_dim);
  const Tensor k_rot = first_of(k, rotary_dim), k_pass = rest_of(k, rotary_dim);
  const Tensor q_embed = rotate(q_rot, tables.cos, tables.sin), k_embed = rotate(k_rot, tables.cos, tables.sin);
  Tensor q_joined = cat({q_embed, q_pass}, -1), k_joined = cat({k_embed, k_pass}, -1);
  return {std::move(q_joined), std::move(k_joined)};
}

std::pair<Tensor, Tensor> rotate_pairs_float32(const Tensor& q_in, const Tensor& k_in,
                                               const PositionEmbeddings& positions) {
  const Tensor q = to(q_in, DType::float32), k = to(k_in, DType::float32);
  const Tables tables = unsqueezed(positions);
  const Tensor q_embed = rotate(q, tables.cos, tables.sin), k_embed = rotate(k, tables.cos, tables.sin);
  return {to(q_embed, q_in.dtype()), to(k_embed, k_in.dtype())};
}

std::pair<Tensor, Tensor> rotate_spread_float32(const Tensor& q, const Tensor& k, const PositionEmbeddings& positions) {
  Tables tables = unsqueezed(positions);
  spread(tables);
  const auto embed = [&](const Tensor& x) {
    Tensor straight = to(x, DType::float32);
    straight = mul(straight, tables.cos);
    Tensor turned = rotate_half(x);
    turned = to(turned, DType::float32);
    turned = mul(turned, tables.sin);
    return add(straight, turned);
  };
  const Tensor q_embed = embed(q), k_embed = embed(k);
  return {to(q_embed, q.dtype()), to(k_embed, k.dtype())};
}

std::pair<Tensor, Tensor> rotate_with_liger(const Tensor& q, const Tensor& k, const PositionEmbeddings& positions) {
  return liger_rotary_pos_emb(q, k, positions.cos, positions.sin);
}

PositionEmbeddings embed_positions_float32(const LlamaRotaryEmbedding& rotary_emb, const Tensor& position_ids, DType) {
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

std::size_t layer_index(const Builder& attention) {
  const std::vector<ModuleRecord>& modules = attention.context->log.modules;
  return static_cast<std::size_t>(std::max(0, modules[modules[attention.module].parent].index));
}

AttentionCall attention_call(const TextConfig& config, const ModelOptions& options) {
  AttentionCall call{options.attention, true, config.attention_dropout};
  call.softcaps = config.softcaps_attention;
  return call;
}

AttentionOutputs attend(const AttentionCall& call, std::size_t layer_idx, AttentionInputs& states,
                        const PositionEmbeddings& positions, const Tensor& attention_mask,
                        const EagerAttention& own_eager) {
  if (KvCache* const cache = states.query.context().past_key_values) {
    KvCache::States cached = cache->update(layer_idx, states.key, states.value);
    states.key = std::move(cached.keys);
    states.value = std::move(cached.values);
  }
  AttentionOutputs attention = own_eager && call.kind == AttentionKind::eager
                                   ? own_eager(call, states, attention_mask)
                                   : attention_forward(call, states.query, states.key, states.value, attention_mask,
                                                       {positions.position_ids, positions.rows, positions.cu_seq_lens});
  const Shape& heads = attention.output.sizes();
  attention.output = reshape(attention.output, {heads[0], heads[1], checked_product(heads[2], heads[3])});
  return attention;
}

TextAttention::TextAttention(const Builder& builder, const TextConfig& config, const ModelOptions& options,
                             const AttentionParts& parts)
    : parts_(parts),
      head_dim_(config.head_dim),
      residual_dropout_(config.residual_dropout),
      call_(attention_call(config, options)),
      layer_idx_(layer_index(builder)),
      module_(builder.module) {
  if (options.liger.rope && parts_.rotate) parts_.rotate = rotate_with_liger;
  const std::int64_t hidden = config.hidden_size, width = config.num_attention_heads * head_dim_,
                     kv_width = config.num_key_value_heads * head_dim_;
  q_proj_ = Linear(builder.child("q_proj", "Linear"), hidden, parts.has_gate ? 2 * width : width, config.qkv_bias);
  k_proj_ = Linear(builder.child("k_proj", "Linear"), hidden, kv_width, config.qkv_bias);
  v_proj_ = Linear(builder.child("v_proj", "Linear"), hidden, kv_width, config.qkv_bias);
  o_proj_ = Linear(builder.child(parts.o_proj, "Linear"), width, hidden, config.output_bias);
  if (parts.with_sinks) sinks_ = builder.parameter("sinks", {config.num_attention_heads});
  if (parts.norms_at == HeadNorms::none || (!parts.norm && !parts.make_norm)) return;
  const bool whole = parts.norms_at == HeadNorms::whole, own = parts.norm == cohere_layer_norm;
  const auto make = [&](const char* name, std::int64_t heads) -> std::function<Tensor(const Tensor&)> {
    if (parts.make_norm) return parts.make_norm(builder.child(name, parts.norm_type), heads, head_dim_);
    const Shape sizes = whole ? Shape{heads * head_dim_} : own ? Shape{heads, head_dim_} : Shape{head_dim_};
    return Norm(builder.child(name, parts.norm_type), parts.norm, sizes, parts.norm == torch_layer_norm);
  };
  q_norm_ = make(parts.q_norm, config.num_attention_heads);
  k_norm_ = make(parts.k_norm, config.num_key_value_heads);
}

AttentionInputs TextAttention::projected(const Tensor& hidden_states, Tensor& gate) const {
  AttentionInputs states;
  const auto viewed = [&](const Tensor& projected) {
    return view(projected, {projected.size(0), projected.size(1), projected.size(2) / head_dim_, head_dim_});
  };
  if (parts_.norms_at == HeadNorms::projected) {
    states = project_together(hidden_states, q_proj_, k_proj_, v_proj_);
    const bool is_together = static_cast<bool>(states.query);
    const auto project_by = [&](Tensor& projected, const Linear& projection) {
      if (!is_together) projected = projection(hidden_states);
    };
    const auto normalise = [](Tensor& heads, const std::function<Tensor(const Tensor&)>& norm) {
      heads = norm(heads);
      heads = transpose(heads, 1, 2);
    };
    project_by(states.query, q_proj_);
    if (parts_.has_gate) {
      const std::int64_t batch = states.query.size(0), length = states.query.size(1), width = states.query.size(2);
      states.query = view(states.query, {batch, length, width / (2 * head_dim_), 2 * head_dim_});
      {
        const TensorList halves = split(states.query, {head_dim_, head_dim_}, -1);
        states.query = halves[0];
        gate = halves[1];
      }
      gate = reshape(gate, {batch, length, width / 2});
    } else {
      states.query = viewed(states.query);
    }
    normalise(states.query, q_norm_);
    project_by(states.key, k_proj_);
    states.key = viewed(states.key);
    normalise(states.key, k_norm_);
    project_by(states.value, v_proj_);
    states.value = heads_of(states.value, head_dim_);
    return states;
  }
  if (parts_.norms_at == HeadNorms::whole) {
    states.query = q_norm_(q_proj_(hidden_states));
    states.key = k_norm_(k_proj_(hidden_states));
    states.value = v_proj_(hidden_states);
    for (Tensor* heads : {&states.query, &states.key, &states.value}) *heads = heads_of(*heads, head_dim_);
    return states;
  }
  if (parts_.scales_keys) {
    states.query = heads_of(q_proj_(hidden_states), head_dim_);
    {
      const Tensor key = heads_of(k_proj_(hidden_states), head_dim_);
      states.key = mul_scalar(key);
    }
    states.value = heads_of(v_proj_(hidden_states), head_dim_);
    return states;
  }
  if (parts_.norms_at != HeadNorms::viewed) {
    states = project(hidden_states, q_proj_, k_proj_, v_proj_, head_dim_, parts_.projects_first);
    if (parts_.norms_at == HeadNorms::transposed) {
      states.query = q_norm_(states.query);
      states.key = k_norm_(states.key);
    }
    return states;
  }
  states.query = viewed(q_proj_(hidden_states));
  states.key = viewed(k_proj_(hidden_states));
  states.value = viewed(v_proj_(hidden_states));
  if (q_norm_) {
    states.query = q_norm_(states.query);
    states.key = k_norm_(states.key);
  }
  for (Tensor* heads : {&states.query, &states.key, &states.value}) *heads = transpose(*heads, 1, 2);
  return states;
}

AttentionOutputs TextAttention::operator()(const Tensor& hidden_states, const PositionEmbeddings& positions,
                                           const Tensor& attention_mask) const {
  ModuleCall self(hidden_states.context(), module_);
  Tensor gate;
  AttentionInputs states = projected(hidden_states, gate);
  Tensor query_rot, query_pass, key_rot, key_pass;
  if (parts_.cuts_heads) {
    const std::int64_t rotary_dim = positions.cos.size(-1);
    query_rot = first_of(states.query, rotary_dim);
    query_pass = rest_of(states.query, rotary_dim);
    key_rot = first_of(states.key, rotary_dim);
    key_pass = rest_of(states.key, rotary_dim);
    std::tie(query_rot, key_rot) = parts_.rotate(query_rot, key_rot, positions);
    states.query = cat({query_rot, query_pass}, -1);
    states.key = cat({key_rot, key_pass}, -1);
  } else if (parts_.rotate) {
    std::tie(states.query, states.key) = parts_.rotate(states.query, states.key, positions);
  }
  if (parts_.scale) states.query = parts_.scale(states.query, positions);
  if (parts_.norms_at == HeadNorms::rotated) {
    states.query = q_norm_(states.query);
    states.key = k_norm_(states.key);
  }
  EagerAttention own_eager;
  if (parts_.with_sinks)
    own_eager = [this](const AttentionCall& call, const AttentionInputs& its, const Tensor& mask) {
      return parts_.with_sinks(call, its, mask, sinks_);
    };
  AttentionOutputs attention = attend(call_, layer_idx_, states, positions, attention_mask, own_eager);
  if (gate) {
    const Tensor share = sigmoid(gate);
    attention.output = mul(attention.output, share);
  }
  attention.output = o_proj_(attention.output);
  attention.output = self.result(dropout(attention.output, residual_dropout_));
  for (Tensor* name : {&states.query, &states.key, &states.value, &query_rot, &query_pass, &key_rot, &key_pass})
    name->reset();  // as a frame lets its names go
  return attention;
}

}  // namespace oometer
