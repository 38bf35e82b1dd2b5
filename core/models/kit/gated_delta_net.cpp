#include "models/kit/gated_delta_net.h"

#include <string>
#include <utility>

#include "config/reader.h"
#include "models/kit/mixture.h"
#include "nn/activation.h"
#include "nn/kv_cache.h"
#include "ops/experts.h"
#include "ops/masks.h"
#include "ops/ops.h"
#include "ops/vision.h"
#include "rounding.h"

namespace oometer {

namespace {

constexpr std::int64_t kChunk = 64;

Tensor l2norm(const Tensor& x) {
  Tensor inv_norm = mul(x, x);
  inv_norm = sum(inv_norm, {-1}, true);
  inv_norm = add_scalar(inv_norm);
  inv_norm = rsqrt(inv_norm);
  return mul(x, inv_norm);
}

/// x.transpose(1, 2).to(dtype, memory_format=torch.contiguous_format), which is a view where x has that type.
Tensor by_heads(const Tensor& x, DType dtype) {
  const Tensor heads = transpose(x, 1, 2);
  return x.dtype() == dtype ? heads : to_contiguous(heads, dtype);
}

Tensor exp_unsqueezed(const Tensor& x) { return unsqueeze(exp(x), -1); }

/// What both rules begin with: as many heads of each, in float32, [b, heads, s, ...].
DeltaRuleInputs normalised(const DeltaRuleInputs& in) {
  const std::int64_t key_heads = in.key.size(2), heads = in.value.size(2);
  DeltaRuleInputs its = in;
  if (key_heads != heads) {
    its.query = repeat_interleave(its.query, heads / key_heads, 2);
    its.key = repeat_interleave(its.key, heads / key_heads, 2);
  }
  {
    TensorList floats;
    for (const Tensor* x : {&its.query, &its.key, &its.value, &its.beta, &its.g})
      floats.push_back(by_heads(*x, DType::float32));
    its = {floats[0], floats[1], floats[2], floats[4], floats[3]};
  }
  its.query = l2norm(its.query);
  its.key = l2norm(its.key);
  its.query = mul_scalar(its.query);
  return its;
}

}  // namespace

void update_recurrent_state(KvCache& cache, std::size_t layer, const Tensor& last) {
  Tensor& state = cache.linear_states(layer).recurrent;
  if (!state) state = empty(last.context(), Op::zeros_like, last.sizes(), last.dtype(), Role::kv_cache);
  copy_in_place(state, last);
}

DeltaStep delta_step(Tensor& last_recurrent_state, const Tensor& query, const Tensor& key, const Tensor& value,
                     const Tensor& beta, const Tensor& core_attn_out) {
  const auto sum_with = [&last_recurrent_state](const Tensor& x) {
    const Tensor product = mul(last_recurrent_state, unsqueeze(x, -1));
    return sum(product, {-2}, false);
  };
  const Tensor kv_mem = sum_with(key);
  Tensor delta = sub(value, kv_mem);
  delta = mul(delta, beta);
  {
    const Tensor update = mul(unsqueeze(key, -1), unsqueeze(delta, -2));
    last_recurrent_state = add(last_recurrent_state, update);
  }
  const Tensor read = sum_with(query);
  copy_in_place(core_attn_out, read);
  return {kv_mem, delta};
}

DeltaRuleOutputs recurrent_gated_delta_rule(const DeltaRuleInputs& in, const Tensor& initial_state) {
  if (has(in.key.context().behaviours.kernels, Kernels::linear_attention))
    return fla::fused_recurrent_gated_delta_rule(in);
  const auto [query, key, value, decay, beta] = normalised(in);
  Tensor last_recurrent_state = initial_state;
  Tensor core_attn_out = empty_like(Op::zeros_like, value);
  const Tensor q_t = select(query, 2, 0), k_t = select(key, 2, 0), v_t = select(value, 2, 0);
  const Tensor decay_t = unsqueeze(exp_unsqueezed(select(decay, 2, 0)), -1);
  last_recurrent_state = mul(last_recurrent_state, decay_t);
  const Tensor beta_t = unsqueeze(select(beta, 2, 0), -1);
  const DeltaStep names = delta_step(last_recurrent_state, q_t, k_t, v_t, beta_t, select(core_attn_out, 2, 0));
  core_attn_out = contiguous(transpose(core_attn_out, 1, 2));
  core_attn_out = to(core_attn_out, in.query.dtype());
  return {core_attn_out, last_recurrent_state};
}

Documents documents_of(const PositionEmbeddings& given) {
  if (!given.rows || !given.cu_seq_lens) return {};
  Documents documents{given.cu_seq_lens};
  for (const std::vector<std::int64_t>& row : given.rows->documents)
    for (const std::int64_t length : row) documents.chunks += divide_up(length, fla::kChunk);
  return documents;
}

DeltaRuleOutputs chunk_gated_delta_rule(const DeltaRuleInputs& in, bool output_final_state,
                                        const Documents& documents) {
  Context& context = in.key.context();
  if (has(context.behaviours.kernels, Kernels::linear_attention))
    return fla::chunk_gated_delta_rule(in, output_final_state, documents);
  const DType initial_dtype = in.query.dtype();
  const std::int64_t batch = in.key.size(0), length = in.key.size(1), key_dim = in.key.size(3),
                     heads = in.value.size(2), value_dim = in.value.size(3);
  auto [query, key, value, decay, beta] = normalised(in);

  const std::int64_t pad_size = (kChunk - length % kChunk) % kChunk, chunks = (length + pad_size) / kChunk;
  {
    const Tensor q = pad(query, 2, pad_size), k = pad(key, 2, pad_size), v = pad(value, 2, pad_size);
    query = q;
    key = k;
    value = v;
  }
  {
    const Tensor b = pad(beta, 2, pad_size), d = pad(decay, 2, pad_size);
    beta = b;
    decay = d;
  }
  Tensor v_beta = mul(value, unsqueeze(beta, -1)), k_beta = mul(key, unsqueeze(beta, -1));
  for (Tensor* x : {&query, &key, &k_beta, &v_beta}) *x = reshape(*x, {batch, heads, chunks, kChunk, x->size(3)});
  decay = reshape(decay, {batch, heads, chunks, kChunk});
  Tensor strictly_upper_mask;
  {
    const Tensor ones = empty(context, Op::ones_like, {kChunk, kChunk}, DType::boolean);
    strictly_upper_mask = triangle(ones);
  }
  const Tensor cum_decay = cumsum(decay, 3, decay.dtype());

  Tensor pairwise_decay = sub(unsqueeze(cum_decay, 4), unsqueeze(cum_decay, 3));
  pairwise_decay = masked_fill(pairwise_decay, strictly_upper_mask);
  pairwise_decay = exp(pairwise_decay);

  Tensor ut_system = matmul(k_beta, transpose(key, 3, 4));
  ut_system = mul(ut_system, pairwise_decay);
  Tensor intra_chunk_attn = matmul(query, transpose(key, 3, 4));
  intra_chunk_attn = mul(intra_chunk_attn, pairwise_decay);
  Tensor decayed_k_beta = exp_unsqueezed(cum_decay);
  decayed_k_beta = mul(k_beta, decayed_k_beta);
  const Tensor new_values = solve_triangular(ut_system, v_beta),
               k_cumdecay = solve_triangular(ut_system, decayed_k_beta);

  Tensor last_recurrent_state = empty(context, Op::zeros, {batch, heads, key_dim, value_dim}, new_values.dtype());
  Tensor core_attn_out = empty_like(Op::zeros_like, new_values);
  {
    const Tensor decayed = exp_unsqueezed(cum_decay);
    query = mul(query, decayed);
  }
  {
    Tensor decayed = sub(slice(cum_decay, 3, kChunk - 1, 1), cum_decay);
    decayed = exp_unsqueezed(decayed);
    key = mul(key, decayed);
  }
  Tensor chunk_decay = exp(select(cum_decay, 3, kChunk - 1));
  chunk_decay = unsqueeze(unsqueeze(chunk_decay, -1), -1);

  Tensor v_new, inter_chunk_attn;
  for (std::int64_t i = 0; i < chunks; ++i) {
    const auto of = [i](const Tensor& x) { return select(x, 2, i); };
    {
      const Tensor values = of(new_values), predicted = matmul(of(k_cumdecay), last_recurrent_state);
      v_new = sub(values, predicted);
    }
    inter_chunk_attn = matmul(of(query), last_recurrent_state);
    {
      Tensor read = matmul(of(intra_chunk_attn), v_new);
      read = add(inter_chunk_attn, read);
      copy_in_place(of(core_attn_out), read);
    }
    {
      const Tensor decayed = mul(last_recurrent_state, of(chunk_decay));
      const Tensor update = matmul(transpose(of(key), 2, 3), v_new);
      last_recurrent_state = add(decayed, update);
    }
  }
  if (!output_final_state) last_recurrent_state.reset();
  core_attn_out = reshape(core_attn_out, {batch, heads, chunks * kChunk, value_dim});
  if (pad_size != 0) core_attn_out = slice(core_attn_out, 2, 0, length);
  return {by_heads(core_attn_out, initial_dtype), last_recurrent_state};
}

Tensor rms_norm_gated(const Norm& norm, const Tensor& hidden_in, const Tensor& gate) {
  ModuleCall call(hidden_in.context(), norm.module);
  const Tensor argument = call.argument(hidden_in);
  Tensor hidden_states = to(argument, DType::float32);
  Tensor variance = pow(hidden_states, 2);
  variance = mean(variance, -1, true);
  {
    Tensor scale = add_scalar(variance);
    scale = rsqrt(scale);
    hidden_states = mul(hidden_states, scale);
  }
  {
    const Tensor cast = to(hidden_states, argument.dtype());
    hidden_states = mul(norm.weight, cast);
  }
  {
    Tensor activated = to(gate, DType::float32);
    activated = activate(Activation::silu, activated);
    hidden_states = mul(hidden_states, activated);
  }
  return call.result(to(hidden_states, argument.dtype()));
}

GatedDeltaNet::GatedDeltaNet(const Builder& builder, const TextConfig& config, const char* norm_type,
                             bool joins_projections)
    : sizes_(config.mixer),
      activation_(config.hidden_act),
      joins_projections_(joins_projections),
      layer_idx_(layer_index(builder)),
      module_(builder.module) {
  const std::int64_t hidden = config.hidden_size, heads = sizes_.num_value_heads, keys = sizes_.key_size(),
                     values = sizes_.value_size();
  const auto linear = [&](const char* name, std::int64_t in, std::int64_t out) {
    return Linear(builder.child(name, "Linear"), in, out, false);
  };
  conv1d_ = CausalConv(builder.child("conv1d", "Conv1d"), 2 * keys + values, sizes_.conv_kernel, false);
  if (joins_projections) {
    in_proj_qkvz_ = linear("in_proj_qkvz", hidden, 2 * keys + 2 * values);
    in_proj_ba_ = linear("in_proj_ba", hidden, 2 * heads);
  }
  dt_bias_ = builder.parameter("dt_bias", {heads});
  const Tensor a = empty(*builder.context, Op::empty, {heads}, builder.dtype);  // A, until __init__ returns
  a_log_ = builder.parameter("A_log", {heads});
  norm_ = Norm(builder.child("norm", norm_type), nullptr, {sizes_.value_head_dim});
  out_proj_ = linear("out_proj", values, hidden);
  if (joins_projections) return;
  in_proj_qkv_ = linear("in_proj_qkv", hidden, 2 * keys + values);
  in_proj_z_ = linear("in_proj_z", hidden, values);
  in_proj_b_ = linear("in_proj_b", hidden, heads);
  in_proj_a_ = linear("in_proj_a", hidden, heads);
}

GatedDeltaNet::Projected GatedDeltaNet::project(const Tensor& hidden_states) const {
  const std::int64_t batch = hidden_states.size(0), length = hidden_states.size(1), heads = sizes_.num_value_heads,
                     key_dim = sizes_.key_head_dim, value_dim = sizes_.value_head_dim;
  Projected p;
  if (!joins_projections_) {
    p.mixed_qkv = transpose(in_proj_qkv_(hidden_states), 1, 2);
    p.z = reshape(in_proj_z_(hidden_states), {batch, length, heads, value_dim});
    p.b = in_proj_b_(hidden_states);
    p.a = in_proj_a_(hidden_states);
    return p;
  }
  p.qkvz = in_proj_qkvz_(hidden_states);
  p.ba = in_proj_ba_(hidden_states);
  const std::int64_t groups = sizes_.num_key_heads, in_group = heads / groups;
  {  // fix_query_key_value_ordering
    const Tensor mixed_qkvz = view(p.qkvz, {batch, length, groups, 2 * (key_dim + in_group * value_dim)}),
                 mixed_ba = view(p.ba, {batch, length, groups, 2 * in_group});
    const TensorList qkvz = split(mixed_qkvz, {key_dim, key_dim, in_group * value_dim, in_group * value_dim}, 3),
                     ba = split(mixed_ba, {in_group, in_group}, 3);
    p.query = qkvz[0];
    p.key = qkvz[1];
    p.value = reshape(qkvz[2], {batch, length, heads, value_dim});
    p.z = reshape(qkvz[3], {batch, length, heads, value_dim});
    p.b = reshape(ba[0], {batch, length, heads});
    p.a = reshape(ba[1], {batch, length, heads});
  }
  {
    TensorList flat;
    for (const Tensor* x : {&p.query, &p.key, &p.value})
      flat.push_back(reshape(*x, {batch, length, x->size(2) * x->size(3)}));
    p.query = flat[0];
    p.key = flat[1];
    p.value = flat[2];
  }
  p.mixed_qkv = transpose(cat({p.query, p.key, p.value}, -1), 1, 2);
  return p;
}

AttentionOutputs GatedDeltaNet::operator()(const Tensor& given, const PositionEmbeddings& positions,
                                           const Tensor& attention_mask) const {
  ModuleCall call(given.context(), module_);
  const Tensor hidden_states = apply_mask_to_padding_states(call.keyword(given), attention_mask);
  const std::int64_t batch = hidden_states.size(0), length = hidden_states.size(1), keys = sizes_.key_size(),
                     values = sizes_.value_size();
  Projected p = project(hidden_states);
  KvCache* const cache = given.context().past_key_values;
  const bool decodes = cache && length == 1 && cache->linear_states(layer_idx_).conv;
  p.mixed_qkv = conv1d_(std::move(p.mixed_qkv), activation_, layer_idx_);
  p.mixed_qkv = transpose(p.mixed_qkv, 1, 2);
  {
    const TensorList parts = split(p.mixed_qkv, {keys, keys, values}, -1);
    p.query = parts[0];
    p.key = parts[1];
    p.value = parts[2];
  }
  for (Tensor* x : {&p.query, &p.key}) *x = reshape(*x, {batch, length, sizes_.num_key_heads, sizes_.key_head_dim});
  p.value = reshape(p.value, {batch, length, sizes_.num_value_heads, sizes_.value_head_dim});
  const Tensor beta = sigmoid(p.b);
  Tensor g;
  {
    Tensor rate = to(a_log_, DType::float32);
    rate = exp(rate);
    rate = neg(rate);
    Tensor step = to(p.a, DType::float32);
    step = add(step, dt_bias_);
    step = activation_of_input(Op::softplus, Op::softplus_backward, step, false);
    g = mul(rate, step);
  }
  const DeltaRuleInputs inputs{p.query, p.key, p.value, g, beta};
  DeltaRuleOutputs outputs = decodes ? recurrent_gated_delta_rule(inputs, cache->linear_states(layer_idx_).recurrent)
                                     : chunk_gated_delta_rule(inputs, cache != nullptr, documents_of(positions));
  if (cache) update_recurrent_state(*cache, layer_idx_, outputs.last_recurrent_state);
  Tensor core_attn_out = std::move(outputs.core_attn_out);
  const std::int64_t rows = batch * length * sizes_.num_value_heads;
  core_attn_out = reshape(core_attn_out, {rows, sizes_.value_head_dim});
  p.z = reshape(p.z, {rows, sizes_.value_head_dim});
  core_attn_out = rms_norm_gated(norm_, core_attn_out, p.z);
  core_attn_out = reshape(core_attn_out, {batch, length, values});
  return {call.result(out_proj_(core_attn_out)), {}};
}

std::unique_ptr<DecoderLayer> make_gated_layer(const Builder& builder, const TextConfig& c, const ModelOptions& options,
                                               std::size_t index, const GatedLayerNames& names) {
  auto layer = std::make_unique<TextLayer>(builder, pre_norm);
  const auto with_liger = norm_of(options.liger, rms_norm_one_plus, liger_norm_apart);
  const auto norm = [&](const char* name) {
    return Norm(builder.child(name, c.names->rms_norm), with_liger, {c.hidden_size});
  };
  if (c.mixer.is_in(index)) {
    layer->self_attn =
        GatedDeltaNet(builder.child("linear_attn", names.delta_net), c, names.delta_norm, names.joins_projections);
  } else {
    AttentionParts its;
    its.has_gate = true;
    its.rotate = rotate_first_halves;
    its.norms_at = HeadNorms::projected;
    its.norm = with_liger;
    its.norm_type = c.names->rms_norm;
    layer->self_attn = TextAttention(builder.child("self_attn", c.names->attention), c, options, its);
  }
  if (names.router && c.experts.are_in(index))
    layer->mlp = BlockWithGatedShared(builder.child("mlp", names.block), c, names.router, names.experts, options.liger,
                                      names.merged_in_checkpoint ? ExpertsParts{.checkpoint = {}} : ExpertsParts{});
  else
    layer->mlp = LlamaMLP(builder.child("mlp", c.names->mlp), c, options.liger);
  layer->input_norm = norm("input_layernorm");
  layer->feedforward_norm = norm("post_attention_layernorm");
  return layer;
}

void read_gated_heads(ConfigReader& reader, TextConfig& c, double rotary_share) {
  c.qkv_bias = c.output_bias = reader.boolean("attention_bias", false);
  read_partial_rotary(reader, c, rotary_share);
  check_llama_heads(reader, c);
  MixerConfig& m = c.mixer;
  m.kernels = Kernels::linear_attention | Kernels::causal_conv1d;
  m.conv_kernel = reader.integer("linear_conv_kernel_dim", 4);
  m.key_head_dim = reader.integer("linear_key_head_dim", 128);
  m.value_head_dim = reader.integer("linear_value_head_dim", 128);
  m.num_key_heads = reader.integer("linear_num_key_heads", 16);
  m.num_value_heads = reader.integer("linear_num_value_heads", 32);
  if (m.num_value_heads % m.num_key_heads != 0)
    reader.fail_found("linear_num_value_heads", "inconsistent",
                      "expected a multiple of linear_num_key_heads (" + std::to_string(m.num_key_heads) + ")");
}

TextConfig read_gated_text(ConfigReader& reader, const TextConfig& defaults) {
  TextConfig c = read_text_sizes(reader, defaults, 256);
  read_gated_heads(reader, c, 0.25);
  read_mixer_layers(reader, c, "linear_attention", reader.integer("full_attention_interval", 4));
  // What the classes of 5.23 leave out: heads that predict more tokens, and what they always do.
  reader.ignore({"attn_output_gate", "mamba_ssm_dtype", "mtp_num_hidden_layers", "mtp_use_dedicated_embeddings"});
  return c;
}

}  // namespace oometer
