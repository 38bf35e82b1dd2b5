#include "models/kimi_linear/delta_attention.h"

#include <utility>

#include "models/kit/gated_delta_net.h"
#include "models/kit/kept_in_float32.h"
#include "models/kit/text_attention.h"
#include "nn/activation.h"
#include "nn/kv_cache.h"
#include "ops/masks.h"
#include "ops/ops.h"
#include "ops/vision.h"

namespace oometer {

namespace {

constexpr std::int64_t kChunk = 64;

Tensor l2norm(const Tensor& x) {
  Tensor inv_norm = mul(x, x);
  inv_norm = sum(inv_norm, {-1}, true);
  inv_norm = add_scalar(inv_norm);
  inv_norm = sqrt(inv_norm);
  return div(x, inv_norm);
}

Tensor exp_unsqueezed(const Tensor& x) { return unsqueeze(exp(x), -1); }

/// recurrent_kimi_delta_attention of one token; g is [b, s, heads, d].
DeltaRuleOutputs recurrent_kimi_delta_attention(const DeltaRuleInputs& in, const Tensor& initial_state) {
  DeltaRuleInputs its;
  {
    TensorList floats;
    for (const Tensor* x : {&in.query, &in.key, &in.value, &in.g, &in.beta}) floats.push_back(to(*x, DType::float32));
    its = {floats[0], floats[1], floats[2], floats[3], floats[4]};
  }
  its.query = l2norm(its.query);
  its.key = l2norm(its.key);
  its.query = mul_scalar(its.query);
  const Tensor core_attn_out = empty_like(Op::zeros, its.value);
  Tensor last_recurrent_state = initial_state;
  const Tensor q_i = select(its.query, 1, 0), k_i = select(its.key, 1, 0), v_i = select(its.value, 1, 0);
  const Tensor g_i = exp(unsqueeze(select(its.g, 1, 0), -1)), b_i = unsqueeze(select(its.beta, 1, 0), -1);
  last_recurrent_state = mul(last_recurrent_state, g_i);
  const DeltaStep names = delta_step(last_recurrent_state, q_i, k_i, v_i, b_i, select(core_attn_out, 1, 0));
  return {to(core_attn_out, in.query.dtype()), last_recurrent_state};
}

/// torch.triu(torch.ones(chunk_size, chunk_size, dtype=torch.bool)).
Tensor upper_mask(Context& context) {
  const Tensor ones = empty(context, Op::ones_like, {kChunk, kChunk}, DType::boolean);
  return triangle(ones);
}

/// a.unsqueeze(-2) * b.unsqueeze(-3): of each two tokens of a chunk.
Tensor pairwise(Tensor (*combine)(const Tensor&, const Tensor&), const Tensor& a, const Tensor& b) {
  const Tensor rows = unsqueeze(a, -2), columns = unsqueeze(b, -3);
  return combine(rows, columns);
}

/// (products * decay).sum(dim=-1).masked_fill(mask, 0)
Tensor decayed(Tensor products, const Tensor& decay, const Tensor& mask) {
  products = mul(products, decay);
  products = sum(products, {-1}, false);
  return masked_fill(products, mask);
}

/// chunk_kimi_delta_attention.
DeltaRuleOutputs chunk_kimi_delta_attention(const DeltaRuleInputs& in, bool output_final_state) {
  Context& context = in.key.context();
  const DType initial_dtype = in.query.dtype();
  const std::int64_t batch = in.key.size(0), length = in.key.size(1), heads = in.key.size(2), dim = in.key.size(3);
  DeltaRuleInputs its;
  {
    TensorList floats;
    for (const Tensor* x : {&in.query, &in.key, &in.value, &in.beta, &in.g}) {
      const Tensor heads_first = contiguous(transpose(*x, 1, 2));
      floats.push_back(to(heads_first, DType::float32));
    }
    its = {floats[0], floats[1], floats[2], floats[4], floats[3]};
  }
  auto& [query, key, value, g, beta] = its;
  query = l2norm(query);
  key = l2norm(key);

  const std::int64_t pad_size = (kChunk - length % kChunk) % kChunk, chunks = (length + pad_size) / kChunk;
  {
    const Tensor padded = pad(query, 2, pad_size);
    query = mul_scalar(padded);
  }
  for (Tensor* x : {&key, &value, &g, &beta}) *x = pad(*x, 2, pad_size);
  Tensor v_beta = mul(value, unsqueeze(beta, -1)), k_beta;
  k_beta = mul(key, unsqueeze(beta, -1));
  for (Tensor* x : {&query, &key, &value, &g, &k_beta, &v_beta}) *x = reshape(*x, {batch, heads, chunks, kChunk, dim});
  beta = reshape(beta, {batch, heads, chunks, kChunk});

  g = cumsum(g, 3, g.dtype());
  Tensor mask = upper_mask(context);
  const Tensor strict_mask = upper_mask(context);
  Tensor decay_mask = pairwise(sub, g, g);
  decay_mask = masked_fill(decay_mask, unsqueeze(strict_mask, -1));
  decay_mask = exp(decay_mask);
  Tensor attn = decayed(pairwise(mul, k_beta, key), decay_mask, mask);
  attn = neg(attn);
  Tensor row, sub_rows;
  for (std::int64_t i = 1; i < kChunk; ++i) {
    const auto row_of = [i](const Tensor& x) { return slice(select(x, -2, i), -1, 0, i); };
    row = clone(row_of(attn));
    sub_rows = clone(slice(slice(attn, -2, 0, i), -1, 0, i));
    Tensor solved = mul(unsqueeze(row, -1), sub_rows);
    solved = sum(solved, {-2}, false);
    solved = add(row, solved);
    copy_in_place(row_of(attn), solved);
  }
  {
    const Tensor eye = empty(context, Op::eye, {kChunk, kChunk}, attn.dtype());
    attn = add(attn, eye);
  }
  value = matmul(attn, v_beta);
  Tensor k_cumdecay;
  {
    Tensor with_decay = exp(g);
    with_decay = mul(k_beta, with_decay);
    k_cumdecay = matmul(attn, with_decay);
  }

  Tensor last_recurrent_state = empty(context, Op::zeros, {batch, heads, dim, dim}, value.dtype());
  Tensor core_attn_out = empty_like(Op::zeros_like, value);
  mask = upper_mask(context);
  Tensor attn_inter, attn_intra, v_prime, v_new;
  for (std::int64_t i = 0; i < chunks; ++i) {
    const auto of = [i](const Tensor& x) { return select(x, 2, i); };
    const Tensor q_i = of(query), k_i = of(key), v_i = of(value), g_i = of(g);
    {
      Tensor with_decay = exp(g_i);
      with_decay = mul(q_i, with_decay);
      attn_inter = matmul(with_decay, last_recurrent_state);
    }
    {
      Tensor products = pairwise(mul, q_i, k_i);
      const Tensor decay = of(decay_mask);  // a view made behind the product: backward takes them the other way round
      attn_intra = decayed(std::move(products), decay, mask);
    }
    v_prime = matmul(of(k_cumdecay), last_recurrent_state);
    v_new = sub(v_i, v_prime);
    {
      Tensor read = matmul(attn_intra, v_new);
      read = add(attn_inter, read);
      copy_in_place(of(core_attn_out), read);
    }
    {
      Tensor kept = exp_unsqueezed(select(g_i, 2, kChunk - 1));
      kept = mul(last_recurrent_state, kept);
      Tensor update = sub(slice(g_i, 2, kChunk - 1, 1), g_i);
      update = exp(update);
      update = mul(k_i, update);
      update = matmul(transpose(update, -1, -2), v_new);
      last_recurrent_state = add(kept, update);
    }
  }
  if (!output_final_state) last_recurrent_state.reset();
  core_attn_out = reshape(core_attn_out, {batch, heads, chunks * kChunk, dim});
  if (pad_size != 0) core_attn_out = slice(core_attn_out, 2, 0, length);
  {
    const Tensor tokens_first = contiguous(transpose(core_attn_out, 1, 2));
    core_attn_out = to(tokens_first, initial_dtype);
  }
  return {core_attn_out, last_recurrent_state};
}

Linear plain(const Builder& builder, const char* name, std::int64_t in, std::int64_t out) {
  return Linear(builder.child(name, "Linear"), in, out, false);
}

}  // namespace

ConvolvedProjections::ConvolvedProjections(const Builder& builder, const TextConfig& c, bool keeps_float32)
    : heads(c.mixer.num_value_heads),
      head_dim(c.mixer.value_head_dim),
      q_proj(plain(builder, "q_proj", c.hidden_size, c.mixer.value_size())),
      k_proj(plain(builder, "k_proj", c.hidden_size, c.mixer.value_size())),
      v_proj(plain(builder, "v_proj", c.hidden_size, c.mixer.value_size())),
      activation(c.hidden_act),
      layer_idx(layer_index(builder)) {
  const Builder conv = builder.child("conv1d", "Conv1d");
  conv1d = CausalConv(keeps_float32 ? kept_in_float32(conv) : conv, 3 * heads * head_dim, c.mixer.conv_kernel, false);
}

ConvolvedProjections::Output ConvolvedProjections::operator()(const Tensor& hidden_states, bool slices) const {
  const std::int64_t batch = hidden_states.size(0), length = hidden_states.size(1), width = heads * head_dim;
  Tensor mixed_qkv;
  {
    const Tensor q = q_proj(hidden_states), k = k_proj(hidden_states), v = v_proj(hidden_states);
    mixed_qkv = transpose(cat({q, k, v}, -1), 1, 2);
  }
  KvCache* const cache = hidden_states.context().past_key_values;
  const bool decodes = cache && length == 1 && cache->linear_states(layer_idx).conv;
  mixed_qkv = conv1d(std::move(mixed_qkv), activation, layer_idx);
  if (slices) mixed_qkv = slice(mixed_qkv, 2, 0, length);
  const TensorList parts = split(transpose(mixed_qkv, 1, 2), {width, width, width}, -1);
  const auto by_head = [&](const Tensor& x) { return view(x, {batch, length, heads, head_dim}); };
  return {by_head(parts[0]), by_head(parts[1]), by_head(parts[2]), decodes};
}

DeltaRuleOutputs kimi_delta_attention(const DeltaRuleInputs& in, std::size_t layer, bool decodes) {
  const Context& context = in.key.context();
  KvCache* const cache = context.past_key_values;
  DeltaRuleOutputs outputs;
  if (has(context.behaviours.kernels, Kernels::linear_attention))
    outputs = decodes ? fla::fused_recurrent_kda(in) : fla::chunk_kda(in, cache != nullptr);
  else if (decodes)
    outputs = recurrent_kimi_delta_attention(in, cache->linear_states(layer).recurrent);
  else
    outputs = chunk_kimi_delta_attention(in, cache != nullptr);
  if (cache) update_recurrent_state(*cache, layer, outputs.last_recurrent_state);
  return outputs;
}

Tensor sigmoid_gated_norm(const Norm& norm, const Tensor& given, const Tensor& gate) {
  ModuleCall call(given.context(), norm.module);
  const Tensor argument = call.argument(given);
  Tensor hidden_states = to(argument, DType::float32);
  Tensor variance = pow(hidden_states, 2);
  variance = mean(variance, -1, true);
  {
    Tensor scale = add_scalar(variance);
    scale = rsqrt(scale);
    hidden_states = mul(hidden_states, scale);
  }
  {
    const Tensor weight = to(norm.weight, DType::float32);
    hidden_states = mul(weight, hidden_states);
  }
  {
    Tensor activated = to(gate, DType::float32);
    activated = sigmoid(activated);
    hidden_states = mul(hidden_states, activated);
  }
  return call.result(to(hidden_states, argument.dtype()));
}

KimiForgetGate::KimiForgetGate(const Builder& builder, const TextConfig& c)
    : f_a_proj(plain(builder, "f_a_proj", c.hidden_size, c.mixer.value_head_dim)),
      f_b_proj(plain(builder, "f_b_proj", c.mixer.value_head_dim, c.mixer.value_size())),
      dt_bias(builder.parameter("dt_bias", {c.mixer.value_size()})),
      a_log(builder.parameter("A_log", {1, 1, c.mixer.num_value_heads, 1})),
      heads(c.mixer.num_value_heads),
      head_dim(c.mixer.value_head_dim),
      module(builder.module) {}

Tensor KimiForgetGate::operator()(const Tensor& given) const {
  ModuleCall call(given.context(), module);
  const Tensor hidden_states = call.argument(given);
  Tensor forget_gate = f_a_proj(hidden_states);
  forget_gate = f_b_proj(forget_gate);
  Tensor g;
  {
    const Tensor gate = to(forget_gate, DType::float32), bias = to(dt_bias, DType::float32);
    g = add(gate, view(bias, {1, 1, heads * head_dim}));
    g = view(g, {given.size(0), given.size(1), heads, head_dim});
  }
  const Tensor as_float = to(a_log, DType::float32), decay_rate = exp(as_float);
  Tensor g_softplus;
  {
    const Tensor is_large = pointwise(Op::gt, {&g}, DType::boolean);
    Tensor softplus = exp(g);
    softplus = add_scalar(softplus);
    softplus = activation_of_input(Op::log, Op::div, softplus, false);
    g_softplus = where(is_large, g, softplus);
  }
  const Tensor rate = neg(decay_rate);
  return call.result(mul(rate, g_softplus));
}

KimiDeltaAttention::KimiDeltaAttention(const Builder& builder, const TextConfig& c)
    : projections_(builder, c, false),
      forget_gate_(builder.child("forget_gate", "KimiLinearForgetGate"), c),
      b_proj_(plain(builder, "b_proj", c.hidden_size, projections_.heads)),
      g_a_proj_(plain(builder, "g_a_proj", c.hidden_size, projections_.head_dim)),
      g_b_proj_(plain(builder, "g_b_proj", projections_.head_dim, c.mixer.value_size())),
      o_norm_(builder.child("o_norm", "KimiLinearRMSNormGated"), nullptr, {projections_.head_dim}),
      o_proj_(plain(builder, "o_proj", c.mixer.value_size(), c.hidden_size)),
      module_(builder.module) {}

AttentionOutputs KimiDeltaAttention::operator()(const Tensor& given, const Tensor& attention_mask) const {
  ModuleCall call(given.context(), module_);
  const Tensor hidden_states = apply_mask_to_padding_states(call.keyword(given), attention_mask);
  const auto [query, key, value, decodes] = projections_(hidden_states, true);
  const Shape hidden_shape = query.sizes();
  const Tensor g = forget_gate_(hidden_states);
  Tensor beta = b_proj_(hidden_states);
  beta = sigmoid(beta);
  const DeltaRuleOutputs outputs = kimi_delta_attention({query, key, value, g, beta}, projections_.layer_idx, decodes);
  Tensor gate = g_a_proj_(hidden_states);
  gate = view(g_b_proj_(gate), hidden_shape);
  Tensor output = sigmoid_gated_norm(o_norm_, outputs.core_attn_out, gate);
  output = reshape(output, {hidden_shape[0], hidden_shape[1], hidden_shape[2] * hidden_shape[3]});
  output = o_proj_(output);
  return {call.result(output), {}};
}

}  // namespace oometer
