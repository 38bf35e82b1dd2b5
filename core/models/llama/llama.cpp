#include "models/llama/llama.h"

#include <algorithm>
#include <string_view>
#include <tuple>

#include "models/kit/decoder.h"
#include "models/llama/headinfer.h"
#include "nn/activation.h"
#include "nn/attention.h"
#include "nn/checkpointing.h"
#include "nn/kv_cache.h"
#include "ops/liger.h"
#include "ops/ops.h"

namespace oometer {

bool is_named_norm(std::string_view name) {
  const auto has = [&](std::string_view part) { return name.find(part) != std::string_view::npos; };
  return name == "norm" || name.ends_with("_norm") || has("layernorm") || has("rmsnorm");
}

LlamaRMSNorm::LlamaRMSNorm(const Builder& builder_in, std::int64_t hidden_size, bool with_liger)
    : liger(with_liger), module(builder_in.module) {
  Builder builder = builder_in;
  builder.in_norm = is_named_norm(builder.context->log.modules[module].name);
  weight = builder.parameter("weight", {hidden_size});
}

Tensor LlamaRMSNorm::operator()(const Tensor& argument) const {
  ModuleCall call(argument.context(), module);
  const Tensor hidden_in = call.argument(argument);
  if (liger) return call.result(liger_rms_norm(hidden_in, weight));
  Tensor hidden_states = to(hidden_in, DType::float32);
  Tensor variance = pow(hidden_states, 2);
  variance = mean(variance, -1, true);
  Tensor scale = add_scalar(variance);
  scale = rsqrt(scale);
  hidden_states = mul(hidden_states, scale);
  scale.reset();
  const Tensor normalized = to(hidden_states, hidden_in.dtype());
  return call.result(mul(weight, normalized));
}

LlamaRotaryEmbedding::LlamaRotaryEmbedding(const Builder& builder, const LlamaConfig& config) : module(builder.module) {
  // compute_default_rope_parameters: 1.0 / (base ** (torch.arange(0, dim, 2).float() / dim))
  Context& context = *builder.context;
  const ModuleScope scope(context, module);
  const Shape sizes{config.head_dim / 2};
  Tensor exponents = empty(context, Op::arange, sizes, DType::float32);
  // zero.Init has every floating-point constructor give the model's type.
  const DType dtype = context.construction && !config.float32_frequencies ? builder.dtype : DType::float32;
  exponents = to(exponents, dtype);
  exponents = div_scalar(exponents);
  Tensor powers = empty_like(Op::pow, exponents);
  { const Tensor base = empty(context, Op::empty, {}, DType::float64); }
  exponents.reset();
  {
    const Tensor inverse = empty_like(Op::reciprocal, powers);
    inv_freq = builder.buffer(sizes, dtype);
  }
  powers.reset();
  const Rotary kind = builder.context->behaviours.rotary;
  if (kind == Rotary::pointwise) original_inv_freq = builder.buffer(sizes, dtype);
  // In torch's default type while the model is made: the model's own.
  if (kind == Rotary::cached_per_layer || kind == Rotary::matmul_per_layer)
    set_cos_sin_cache(config.max_position_embeddings, builder.dtype);
  if (context.stopped && cos_cached)  // on the host, from where they go to the device as the module's buffers
    for (const Tensor* table : {&cos_cached, &sin_cached}) builder.buffers->push_back({*table, module});
}

void LlamaRotaryEmbedding::set_cos_sin_cache(std::int64_t length, DType dtype) const {
  Context& context = inv_freq.context();
  const bool is_cached = context.behaviours.rotary == Rotary::cached_per_layer;
  Tensor t = empty(context, Op::arange, {length}, is_cached ? DType::float32 : DType::int64);
  if (!is_cached) {  // .type_as(self.inv_freq), / self.scaling_factor
    t = to(t, DType::float32);
    t = div_scalar(t);
  }
  const Tensor freqs = empty(context, Op::mul, {length, inv_freq.size(0)}, DType::float32);
  const Tensor emb = cat({freqs, freqs}, -1);
  const auto make = [&](Op op) {
    const Tensor values = pointwise(op, {&emb}, DType::float32);
    Tensor table = to(values, dtype);
    context.set_role(table, Role::buffer, module);
    return table;
  };
  cos_cached = make(Op::cos);
  sin_cached = make(Op::sin);
}

PositionEmbeddings LlamaRotaryEmbedding::cached(const Tensor& x) const {
  const ModuleScope scope(x.context(), module);
  const std::int64_t length = x.size(-2);
  if (length > cos_cached.size(0)) set_cos_sin_cache(length, x.dtype());
  const Tensor cos = to(slice(cos_cached, 0, 0, length), x.dtype());
  return {cos, to(slice(sin_cached, 0, 0, length), x.dtype())};
}

// position_ids[..., None].float() * self.inv_freq.to(dtype=torch.float): zero.Init has made these the model's type.
Tensor rotary_angles(const Tensor& position_ids, const Tensor& inv_freq) {
  Tensor positions = to(unsqueeze(position_ids, -1), DType::float32);
  const Tensor inverse = to(inv_freq, DType::float32);
  Tensor freqs = mul(positions, inverse);
  positions.reset();
  return freqs;
}

namespace {

// Qwen2VLRotaryEmbedding.forward: angles of all three positions, of which each section takes one's.
PositionEmbeddings multimodal_rotary(const Tensor& x, const Tensor& position_ids, const Tensor& inv_freq) {
  Tensor cos, sin;  // they go after freqs, cos first
  Tensor freqs = rotary_angles(position_ids, inv_freq);
  const auto of = [&](Op op) {
    const Tensor values = pointwise(op, {&freqs}, DType::float32);
    return mul_scalar(values);
  };
  cos = of(Op::cos);
  sin = of(Op::sin);
  const auto recomposition_frequencies = [](const Tensor& freq) {
    const Tensor one = select(freq, 0, 0);  // as large as the sections' parts are together
    const Tensor chosen = empty(one.context(), Op::cat, one.sizes(), DType::float32);
    return cat({chosen, chosen}, -1);
  };
  sin = recomposition_frequencies(sin);
  cos = recomposition_frequencies(cos);
  PositionEmbeddings result{to(cos, x.dtype()), to(sin, x.dtype())};
  freqs.reset();
  cos.reset();
  return result;
}

}  // namespace

PositionEmbeddings LlamaRotaryEmbedding::operator()(const Tensor& x, const Tensor& position_ids) const {
  Context& context = x.context();
  ModuleCall call(context, module);
  const NoGrad no_grad(context);
  if (position_ids.ndim() == 3) {
    const PositionEmbeddings result = multimodal_rotary(x, position_ids, inv_freq);
    return {call.result(result.cos), call.result(result.sin)};
  }
  const Rotary kind = context.behaviours.rotary;
  const std::int64_t rows = position_ids.size(0), half = inv_freq.size(0);
  Tensor positions = to(unsqueeze(position_ids, kind == Rotary::pointwise ? -1 : 1), DType::float32);
  Tensor freqs;
  if (kind == Rotary::pointwise) {
    freqs = std::move(positions);
    const Tensor inverse = to(inv_freq, DType::float32);
    freqs = mul(freqs, inverse);
  } else {
    const Scoped<bool> without_autocast(context.autocast.enabled, false);
    freqs = transpose(matmul(expand(unsqueeze(unsqueeze(inv_freq, 0), 2), {rows, half, 1}), positions), 1, 2);
  }
  Tensor emb = cat({freqs, freqs}, -1);
  const bool scales_at_once = kind == Rotary::pointwise || kind == Rotary::matmul_scaled;
  Tensor cos = pointwise(Op::cos, {&emb}, DType::float32);
  if (scales_at_once) cos = mul_scalar(cos);
  Tensor sin = pointwise(Op::sin, {&emb}, DType::float32);
  if (scales_at_once) sin = mul_scalar(sin);
  if (kind == Rotary::matmul) {
    cos = mul_scalar(cos);
    sin = mul_scalar(sin);
  }
  const Tensor cos_like_x = to(cos, x.dtype()), sin_like_x = to(sin, x.dtype());
  for (Tensor* name : {&freqs, &emb, &cos}) name->reset();
  return {call.result(cos_like_x), call.result(sin_like_x)};
}

Tensor rotate_half(const Tensor& x) {
  const std::int64_t half = x.size(-1) / 2;
  const Tensor x1 = slice(x, -1, 0, half), x2 = slice(x, -1, half, x.size(-1) - half);
  const Tensor negative = neg(x2);
  return cat({negative, x1}, -1);
}

Tensor rotate(const Tensor& x, const Tensor& cos, const Tensor& sin) {
  Tensor straight = mul(x, cos);
  Tensor turned = rotate_half(x);
  turned = mul(turned, sin);
  Tensor sum = add(straight, turned);
  straight.reset();  // the left operand goes first
  return sum;
}

LlamaMLP::LlamaMLP(const Builder& builder, const LlamaConfig& config, const LigerConfig& kernels)
    : gate_proj(builder.child("gate_proj", "Linear"), config.hidden_size, config.intermediate_size, config.mlp_bias),
      up_proj(builder.child("up_proj", "Linear"), config.hidden_size, config.intermediate_size, config.mlp_bias),
      down_proj(builder.child("down_proj", "Linear"), config.intermediate_size, config.hidden_size, config.mlp_bias),
      act_fn(config.hidden_act),
      liger(kernels.swiglu),
      module(builder.module) {}

Tensor LlamaMLP::operator()(const Tensor& hidden_states) const {
  ModuleCall call(hidden_states.context(), module);
  const Tensor x = call.argument(hidden_states);
  if (gate_proj.wrapper)
    if (Tensor fused = gate_proj.wrapper->gated_mlp(x, gate_proj, up_proj, down_proj)) return call.result(fused);
  Tensor gate = gate_proj(x);
  if (liger) {
    Tensor up = up_proj(x);
    const Tensor product = liger_silu_mul(gate, up);
    gate.reset();
    up.reset();
    return call.result(down_proj(product));
  }
  gate = activate(act_fn, gate);
  Tensor up = up_proj(x);
  const Tensor product = mul(gate, up);
  gate.reset();
  up.reset();
  return call.result(down_proj(product));
}

LlamaAttention::LlamaAttention(const Builder& builder, const LlamaConfig& config, const ModelOptions& options)
    : q_proj(builder.child("q_proj", "Linear"), config.hidden_size, config.num_attention_heads * config.head_dim,
             config.qkv_bias),
      k_proj(builder.child("k_proj", "Linear"), config.hidden_size, config.num_key_value_heads * config.head_dim,
             config.qkv_bias),
      v_proj(builder.child("v_proj", "Linear"), config.hidden_size, config.num_key_value_heads * config.head_dim,
             config.qkv_bias),
      o_proj(builder.child("o_proj", "Linear"), config.num_attention_heads * config.head_dim, config.hidden_size,
             config.output_bias),
      head_dim(config.head_dim),
      call{options.attention, true, config.attention_dropout},
      layer_idx(static_cast<std::size_t>(
          std::max(0, builder.context->log.modules[builder.context->log.modules[builder.module].parent].index))),
      projects_first(config.names->projects_first || !builder.context->behaviours.attention_interface),
      norms_heads(config.names->norms_heads),
      liger_rope(options.liger.rope),
      module(builder.module) {
  if (norms_heads)
    for (auto [norm, name] : {std::pair{&q_norm, "q_norm"}, std::pair{&k_norm, "k_norm"}})
      *norm = LlamaRMSNorm(builder.child(name, config.names->rms_norm), config.head_dim, options.liger.rms_norm);
  // Up to 4.47 each layer has one, which since 4.43 it does not use.
  if (!builder.context->behaviours.attention_interface)
    rotary_emb = LlamaRotaryEmbedding(builder.child("rotary_emb", config.names->rotary_embedding), config);
}

AttentionInputs LlamaAttention::projected(const Tensor& hidden_states) const {
  if (!norms_heads) return project(hidden_states, q_proj, k_proj, v_proj, head_dim, projects_first);
  const auto hidden_shape = [&](const Tensor& states) {
    return view(states, {states.size(0), states.size(1), states.size(2) / head_dim, head_dim});
  };
  AttentionInputs states = project_together(hidden_states, q_proj, k_proj, v_proj);
  if (states.query) {
    states.query = transpose(q_norm(hidden_shape(states.query)), 1, 2);
    states.key = transpose(k_norm(hidden_shape(states.key)), 1, 2);
    states.value = heads_of(states.value, head_dim);
    return states;
  }
  states.query = transpose(q_norm(hidden_shape(q_proj(hidden_states))), 1, 2);
  states.key = transpose(k_norm(hidden_shape(k_proj(hidden_states))), 1, 2);
  states.value = heads_of(v_proj(hidden_states), head_dim);
  return states;
}

AttentionOutputs LlamaAttention::operator()(const Tensor& hidden_states, const PositionEmbeddings& shared,
                                            const Tensor& attention_mask) const {
  const Behaviours& behaviours = hidden_states.context().behaviours;
  ModuleCall self(hidden_states.context(), module);
  KvCache* const cache = hidden_states.context().past_key_values;
  if (cache && cache->is_by_head()) return {attend_by_head(*this, hidden_states, shared, *cache), {}};
  AttentionInputs inputs = projected(hidden_states);
  auto& [query_states, key_states, value_states] = inputs;
  PositionEmbeddings own;  // up to 4.42: names of forward's own
  if (behaviours.rotary == Rotary::cached_per_layer) own = rotary_emb.cached(value_states);
  if (behaviours.rotary == Rotary::matmul_per_layer) own = rotary_emb(value_states, shared.position_ids);
  if (liger_rope) {
    std::tie(query_states, key_states) = liger_rotary_pos_emb(query_states, key_states, shared.cos, shared.sin);
  } else {
    // apply_rotary_pos_emb: both results are there before the names are bound again.
    const PositionEmbeddings& given = own.cos ? own : shared;
    const auto of_positions = [&](const Tensor& table) {  // cos[position_ids]
      if (behaviours.rotary != Rotary::cached_per_layer) return table;
      return empty(table.context(), Op::index, {shared.position_ids.size(0), table.size(0), table.size(1)},
                   table.dtype());
    };
    const Tensor cos = unsqueeze(of_positions(given.cos), 1), sin = unsqueeze(of_positions(given.sin), 1);
    Tensor q_embed = rotate(query_states, cos, sin), k_embed = rotate(key_states, cos, sin);
    query_states = std::move(q_embed);
    key_states = std::move(k_embed);
  }
  if (!behaviours.attention_interface) {
    key_states = repeat_kv(key_states, query_states.size(1));
    value_states = repeat_kv(value_states, query_states.size(1));
  }
  if (cache) {
    KvCache::States states = cache->update(layer_idx, key_states, value_states);
    key_states = std::move(states.keys);
    value_states = std::move(states.values);
  }
  AttentionOutputs attention = attention_forward(call, query_states, key_states, value_states, attention_mask,
                                                 {shared.position_ids, shared.rows, shared.cu_seq_lens});
  const Shape& heads = attention.output.sizes();
  attention.output = reshape(attention.output, {heads[0], heads[1], checked_product(heads[2], heads[3])});
  attention.output = self.result(o_proj(attention.output));
  if (!behaviours.attention_interface) attention.weights.reset();
  for (Tensor* name : {&query_states, &key_states}) name->reset();  // as a frame lets its names go
  return attention;
}

void PreNormLayer::make_norms(const Builder& builder, const char* type, std::int64_t hidden_size, bool liger) {
  input_layernorm_ = LlamaRMSNorm(builder.child("input_layernorm", type), hidden_size, liger);
  post_attention_layernorm_ = LlamaRMSNorm(builder.child("post_attention_layernorm", type), hidden_size, liger);
}

Tensor PreNormLayer::operator()(const Tensor& hidden_in, const PositionEmbeddings& positions,
                                const Tensor& attention_mask) const {
  const ModuleScope scope(hidden_in.context(), module_);
  Tensor residual = hidden_in;
  Tensor hidden_states = input_layernorm_(hidden_in);
  AttentionOutputs attention = self_attn(hidden_states, positions, attention_mask);
  hidden_states = std::move(attention.output);  // the weights stay in `_` until the layer returns
  hidden_states = add(residual, hidden_states);
  residual = hidden_states;
  hidden_states = post_attention_layernorm_(hidden_states);
  hidden_states = mlp(hidden_states);
  return add(residual, hidden_states);
}

LlamaDecoderLayer::LlamaDecoderLayer(const Builder& builder, const LlamaConfig& config, const ModelOptions& options)
    : PreNormLayer(builder),
      self_attn_(builder.child("self_attn", config.names->attention), config, options),
      mlp_(builder.child("mlp", config.names->mlp), config, options.liger) {
  make_norms(builder, config.names->rms_norm, config.hidden_size, options.liger.rms_norm);
}

std::unique_ptr<Model> build_llama(Context& context, const LlamaConfig& config, const DataConfig& data,
                                   const ModelOptions& options) {
  return make_language_model(context, config, data, options);
}

}  // namespace oometer
