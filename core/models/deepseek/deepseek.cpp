#include "models/deepseek/deepseek.h"

#include <algorithm>
#include <utility>

#include "models/deepseek/mtla.h"
#include "models/masking.h"
#include "nn/activation.h"
#include "nn/checkpointing.h"
#include "nn/kv_cache.h"
#include "ops/cub.h"
#include "ops/experts.h"
#include "ops/ops.h"
#include "ops/vision.h"

namespace oometer {

DeepseekRouter::DeepseekRouter(const Builder& builder, const DeepseekConfig& c) : config(&c), module(builder.module) {
  weight = builder.parameter("weight", {c.n_routed_experts, c.hidden_size});
  if (c.names->is_v3) e_score_correction_bias = builder.buffer({c.n_routed_experts}, builder.dtype);
}

Routing DeepseekRouter::operator()(const Tensor& hidden_in) const {
  Context& context = hidden_in.context();
  ModuleCall call(context, module);
  const DeepseekConfig& c = *config;
  const Tensor x = call.argument(hidden_in);
  const std::int64_t tokens = x.numel() / x.size(-1), experts = c.n_routed_experts, in_group = experts / c.n_group;
  const Tensor hidden_states = view(x, {tokens, x.size(-1)});
  Tensor router_logits;
  {
    const Tensor input = to(hidden_states, DType::float32), as_float = to(weight, DType::float32);
    router_logits = linear(input, as_float, {});
  }
  Tensor scores = c.names->is_v3 ? sigmoid(router_logits) : softmax(router_logits, DType::float32);
  // Which groups and experts are chosen: no gradient comes from there. All of these are names of forward's.
  const auto made = [&](Op op, const Shape& sizes, DType dtype) { return empty(context, op, sizes, dtype); };
  Tensor denominator, scores_for_choice = scores, group_scores, group_idx, group_mask, score_mask, chosen;
  if (c.names->is_v3) scores_for_choice = add(scores, e_score_correction_bias);
  if (c.chooses_groups) {
    const Shape groups{tokens, c.n_group};
    {  // V3: the sum of a group's two best; V2: its best, .max(dim=-1).values
      TopK best = topk(view(scores_for_choice, {tokens, c.n_group, in_group}), c.names->is_v3 ? 2 : 1);
      best.indices.reset();
      group_scores = c.names->is_v3 ? sum(best.values, {-1}, false) : view(best.values, groups);
    }
    {
      const Tensor values = made(Op::topk, {tokens, c.topk_group}, DType::float32);
      group_idx = made(Op::topk, {tokens, c.topk_group}, DType::int64);
    }
    group_mask = made(Op::zeros_like, groups, DType::float32);
    score_mask = made(Op::clone, {tokens, c.n_group, in_group}, DType::float32);
    {
      const Tensor as_boolean = made(Op::to_copy, scores.sizes(), DType::boolean);
      chosen = made(Op::bitwise_not, scores.sizes(), DType::boolean);
    }
    scores_for_choice = masked_fill(scores_for_choice, chosen);
    chosen.reset();
  }
  Routing routing;
  routing.router_logits = std::move(router_logits);
  if (c.names->is_v3) {
    {
      const Tensor values = made(Op::topk, {tokens, c.num_experts_per_tok}, DType::float32);
      routing.topk_indices = made(Op::topk, {tokens, c.num_experts_per_tok}, DType::int64);
    }
    routing.topk_weights = gather(scores, routing.topk_indices);
    if (c.norm_topk_prob) {
      denominator = sum(routing.topk_weights, {-1}, true);
      denominator = add_scalar(denominator);
      routing.topk_weights = div_in_place(routing.topk_weights, denominator);
    }
  } else {
    scores = scores_for_choice;  // one name there
    TopK best = topk(scores, c.num_experts_per_tok);
    routing.topk_weights = std::move(best.values);
    routing.topk_indices = std::move(best.indices);
  }
  routing.topk_weights = mul_scalar(routing.topk_weights);
  routing.router_logits = call.result(std::move(routing.router_logits));
  routing.topk_weights = call.result(std::move(routing.topk_weights));
  return routing;
}

DeepseekExperts::DeepseekExperts(const Builder& builder, const DeepseekConfig& c)
    : act_fn(c.hidden_act), module(builder.module) {
  gate_up_proj = builder.parameter("gate_up_proj", {c.n_routed_experts, 2 * c.moe_intermediate_size, c.hidden_size});
  down_proj = builder.parameter("down_proj", {c.n_routed_experts, c.hidden_size, c.moe_intermediate_size});
}

Tensor DeepseekExperts::apply_gate(const Tensor& gate_up_out) const {
  const std::int64_t half = gate_up_out.size(1) / 2;
  TensorList gate_up = split(gate_up_out, {half, half}, -1);
  const Tensor gate = activate(act_fn, gate_up[0]);
  return mul(gate, gate_up[1]);
}

// batched_mm_experts_forward: a copy of an expert's weights for each token that it gets.
Tensor DeepseekExperts::batched_mm(const Tensor& hidden_states, const Tensor& expert_ids,
                                   const Tensor& sample_weights) const {
  const std::int64_t tokens = hidden_states.size(0), hidden = hidden_states.size(1), selected = expert_ids.size(0);
  const Tensor selected_hidden_states =
      empty(hidden_states.context(), Op::repeat, {selected, hidden}, hidden_states.dtype());
  const auto batched_linear = [&](const Tensor& input, const Tensor& weights) {
    return view(bmm(weights, unsqueeze(input, -1)), {selected, weights.size(1)});
  };
  Tensor selected_weights = index(gate_up_proj, 0, expert_ids);
  Tensor proj_out = batched_linear(selected_hidden_states, selected_weights);
  proj_out = apply_gate(proj_out);
  selected_weights = index(down_proj, 0, expert_ids);
  proj_out = batched_linear(proj_out, selected_weights);
  const Tensor weighted_out = mul(proj_out, unsqueeze(sample_weights, -1));
  const Tensor final_hidden_states = sum(view(weighted_out, {tokens, selected / tokens, hidden}), {1}, false);
  return to(final_hidden_states, hidden_states.dtype());
}

Tensor DeepseekExperts::operator()(const Tensor& hidden_in, const Tensor& top_k_index,
                                   const Tensor& top_k_weights) const {
  Context& context = hidden_in.context();
  ModuleCall call(context, module);
  const Tensor hidden_states = call.argument(hidden_in);
  const std::int64_t tokens = hidden_states.size(0), hidden = hidden_states.size(1), top_k = top_k_index.size(-1);
  const std::int64_t selected = tokens * top_k, experts = gate_up_proj.size(0);
  const Tensor sample_weights = reshape(call.argument(top_k_weights), {selected});
  if (context.past_key_values && context.past_key_values->decodes)
    return call.result(batched_mm(hidden_states, reshape(top_k_index, {selected}), sample_weights));
  const TopK sorted = sort(reshape(top_k_index, {selected}));
  const Tensor& perm = sorted.indices;
  Tensor selected_hidden_states;
  {
    const Tensor token = empty(context, Op::floor_divide, {selected}, DType::int64);
    selected_hidden_states = index(hidden_states, 0, token);
  }
  const Tensor sample_weights_g = index(sample_weights, 0, perm);
  const Tensor histc_input = empty(context, Op::to_copy, {selected}, DType::int32);
  const Tensor tokens_per_expert = empty(context, Op::histc, {experts}, DType::int32);
  const Tensor offsets = empty(context, Op::cumsum, {experts}, DType::int32);
  { const Workspace scan(context, Op::cumsum, cub_scan_bytes(experts) - 256); }  // descriptors of 8 bytes: int32
  Tensor proj_out = grouped_mm(to(selected_hidden_states, gate_up_proj.dtype()), gate_up_proj, offsets);
  proj_out = apply_gate(proj_out);
  proj_out = grouped_mm(to(proj_out, down_proj.dtype()), down_proj, offsets);
  Tensor weighted_out = mul(proj_out, unsqueeze(sample_weights_g, -1));
  const Tensor inv_perm = empty_like(Op::empty, perm);
  { const Tensor range = empty(context, Op::arange, {selected}, DType::int64); }
  weighted_out = index(weighted_out, 0, inv_perm);
  const Tensor final_hidden_states = sum(view(weighted_out, {tokens, top_k, hidden}), {1}, false);
  return call.result(to(final_hidden_states, hidden_states.dtype()));
}

DeepseekMoe::DeepseekMoe(const Builder& builder, const DeepseekConfig& c)
    : experts(builder.child("experts", c.names->experts), c),
      gate(builder.child("gate", c.names->router), c),
      shared_experts(builder.child("shared_experts", c.names->mlp),
                     c.mlp(c.moe_intermediate_size * c.n_shared_experts)),
      module(builder.module) {}

Tensor DeepseekMoe::operator()(const Tensor& hidden_in) const {
  ModuleCall call(hidden_in.context(), module);
  const Tensor residuals = call.argument(hidden_in);
  const Routing routing = gate(residuals);
  Tensor hidden_states = view(residuals, {residuals.numel() / residuals.size(-1), residuals.size(-1)});
  hidden_states = experts(hidden_states, routing.topk_indices, routing.topk_weights);
  hidden_states = view(hidden_states, residuals.sizes());
  {
    const Tensor shared = shared_experts(residuals);
    hidden_states = add(hidden_states, shared);
  }
  return call.result(hidden_states);
}

HyperNetwork::HyperNetwork(const Builder& builder, std::int64_t width)
    : fc_c(builder.child("fc_c", "Linear"), width, width / 4, true),
      fc_p(builder.child("fc_p", "Linear"), width, width / 4, true),
      module(builder.module) {}

DeepseekAttention::DeepseekAttention(const Builder& builder, const DeepseekConfig& c, const ModelOptions& options)
    : config(&c),
      call{options.attention, true, c.attention_dropout},
      layer_idx(static_cast<std::size_t>(
          std::max(0, builder.context->log.modules[builder.context->log.modules[builder.module].parent].index))),
      module(builder.module) {
  const std::int64_t heads = c.num_attention_heads;
  if (c.q_lora_rank == 0) {
    q_proj = Linear(builder.child("q_proj", "Linear"), c.hidden_size, heads * c.qk_head_dim(), false);
  } else {
    q_a_proj = Linear(builder.child("q_a_proj", "Linear"), c.hidden_size, c.q_lora_rank, c.attention_bias);
    q_a_layernorm = LlamaRMSNorm(builder.child("q_a_layernorm", c.names->rms_norm), c.q_lora_rank);
    q_b_proj = Linear(builder.child("q_b_proj", "Linear"), c.q_lora_rank, heads * c.qk_head_dim(), false);
  }
  kv_a_proj_with_mqa =
      Linear(builder.child("kv_a_proj_with_mqa", "Linear"), c.hidden_size, c.latent_size(), c.attention_bias);
  kv_a_layernorm = LlamaRMSNorm(builder.child("kv_a_layernorm", c.names->rms_norm), c.kv_lora_rank);
  kv_b_proj =
      Linear(builder.child("kv_b_proj", "Linear"), c.kv_lora_rank, heads * (c.qk_nope_head_dim + c.v_head_dim), false);
  o_proj = Linear(builder.child("o_proj", "Linear"), heads * c.v_head_dim, c.hidden_size, c.attention_bias);
  if (c.temporal_stride != 0)
    hypernet_down = HyperNetwork(builder.child("hypernet_down", "HyperNetwork"), c.kv_lora_rank);
}

namespace {

// apply_rotary_emb (V2): pairs of float32 taken for complex numbers.
DeepseekAttention::Rotated rotate_complex(const Tensor& xq, const Tensor& xk, const Tensor& freqs_cis) {
  const auto as_complex = [](const Tensor& x) {
    Shape sizes = x.sizes();
    sizes[-1] /= 2;
    sizes.push_back(2);
    return reshape(to(x, DType::float32), sizes);
  };
  const Tensor xq_ = as_complex(xq), xk_ = as_complex(xk);
  const auto out = [&](const Tensor& x, const Tensor& like) {
    Tensor turned = mul_complex(x, freqs_cis);
    turned = view(turned, like.sizes());
    return to(turned, like.dtype());
  };
  DeepseekAttention::Rotated rotated;
  rotated.q = out(xq_, xq);
  rotated.k = out(xk_, xk);
  return rotated;
}

// apply_rotary_pos_emb_interleave (V3): even and odd elements, x[..., 0::2] and x[..., 1::2].
DeepseekAttention::Rotated rotate_interleaved(const Tensor& q, const Tensor& k, const Tensor& cos, const Tensor& sin) {
  const std::int64_t half = q.size(-1) / 2;
  const auto every_second = [&](const Tensor& whole) {
    Tensor part = slice(whole, -1, 0, half);
    part->strides[-1] *= 2;
    return part;
  };
  const Tensor q1 = every_second(q), q2 = every_second(q), k1 = every_second(k), k2 = every_second(k);
  const auto turned = [&](const Tensor& x1, const Tensor& x2) {
    const auto combined = [&](Tensor (*join)(const Tensor&, const Tensor&), const Tensor& a, const Tensor& b) {
      const Tensor with_cos = mul(a, cos), with_sin = mul(b, sin);
      return join(with_cos, with_sin);
    };
    const Tensor first = combined(sub, x1, x2), second = combined(add, x2, x1);
    return cat({first, second}, -1);
  };
  DeepseekAttention::Rotated rotated;
  rotated.q = turned(q1, q2);
  rotated.k = turned(k1, k2);
  return rotated;
}

}  // namespace

DeepseekAttention::Rotated DeepseekAttention::turn(const Tensor& q, const Tensor& k,
                                                   const PositionEmbeddings& positions) const {
  if (!config->names->is_v3) return rotate_complex(q, k, positions.cos);
  Tensor cos = positions.cos, sin = positions.sin;
  const std::int64_t half = config->qk_rope_head_dim / 2;
  if (config->rope_interleave) {
    cos = unsqueeze(slice(cos, -1, 0, half), 1);
    sin = unsqueeze(slice(sin, -1, 0, half), 1);
    return rotate_interleaved(q, k, cos, sin);
  }
  cos = unsqueeze(cos, 1);
  sin = unsqueeze(sin, 1);
  Rotated rotated;
  rotated.q = rotate(q, cos, sin);
  rotated.k = rotate(k, cos, sin);
  return rotated;
}

Tensor DeepseekAttention::project_queries(const Tensor& hidden_states) const {
  Tensor q;
  if (config->q_lora_rank == 0) {
    q = q_proj(hidden_states);
  } else {
    Tensor compressed = q_a_proj(hidden_states);
    compressed = q_a_layernorm(compressed);
    q = q_b_proj(compressed);
  }
  return heads_of(q, config->qk_head_dim());
}

AttentionInputs DeepseekAttention::expand_kv(const Tensor& kv_nope, const Tensor& k_rot) const {
  const DeepseekConfig& c = *config;
  const std::int64_t batch = kv_nope.size(0), length = kv_nope.size(2), heads = c.num_attention_heads;
  Tensor expanded = kv_b_proj(kv_nope);
  expanded = transpose(view(expanded, {batch, length, heads, c.qk_nope_head_dim + c.v_head_dim}), 1, 2);
  TensorList parts = split(expanded, {c.qk_nope_head_dim, c.v_head_dim}, -1);
  const Tensor shared = expand(k_rot, {batch, heads, length, c.qk_rope_head_dim});
  AttentionInputs inputs;
  inputs.value = parts[1];
  inputs.key = empty(kv_nope.context(), Op::empty, {batch, heads, length, c.qk_head_dim()}, expanded.dtype());
  inputs.key = copy_into(inputs.key, parts[0]);
  inputs.key = copy_into(inputs.key, shared);
  return inputs;
}

AttentionOutputs DeepseekAttention::operator()(const Tensor& hidden_states, const PositionEmbeddings& positions,
                                               const Tensor& attention_mask) const {
  Context& context = hidden_states.context();
  ModuleCall self(context, module);
  const DeepseekConfig& c = *config;
  if (c.temporal_stride != 0) return attend_temporally(*this, hidden_states, positions, *context.past_key_values);
  const std::int64_t batch = hidden_states.size(0), length = hidden_states.size(1);
  const Tensor q = project_queries(hidden_states);
  TensorList queries = split(q, {c.qk_nope_head_dim, c.qk_rope_head_dim}, -1);
  const Tensor compressed_kv = kv_a_proj_with_mqa(hidden_states);
  TensorList latents = split(compressed_kv, {c.kv_lora_rank, c.qk_rope_head_dim}, -1);
  Tensor k_nope = kv_a_layernorm(latents[0]);
  k_nope = view(k_nope, {batch, 1, length, c.kv_lora_rank});
  Tensor k_pe = view(latents[1], {batch, 1, length, c.qk_rope_head_dim});
  Rotated rotated = turn(queries[1], k_pe, positions);
  const Tensor q_pe = std::move(rotated.q);
  k_pe = std::move(rotated.k);
  // The cache keeps what is still compressed.
  if (KvCache* const cache = context.past_key_values) {
    KvCache::States states = cache->update(layer_idx, k_nope, k_pe);
    k_nope = std::move(states.keys);
    k_pe = std::move(states.values);
  }
  const Tensor query_states = cat({queries[0], q_pe}, -1);
  const AttentionInputs inputs = expand_kv(k_nope, k_pe);
  AttentionOutputs attention = attention_forward(call, query_states, inputs.key, inputs.value, attention_mask);
  const Shape& heads = attention.output.sizes();
  attention.output = reshape(attention.output, {heads[0], heads[1], checked_product(heads[2], heads[3])});
  attention.output = self.result(o_proj(attention.output));
  return attention;
}

DeepseekDecoderLayer::DeepseekDecoderLayer(const Builder& builder, const DeepseekConfig& c, const ModelOptions& options,
                                           bool with_experts)
    : self_attn(builder.child("self_attn", c.names->attention), c, options),
      has_experts(with_experts),
      module(builder.module) {
  const Builder feed_forward = builder.child("mlp", has_experts ? c.names->moe : c.names->mlp);
  if (has_experts)
    moe = DeepseekMoe(feed_forward, c);
  else
    mlp = LlamaMLP(feed_forward, c.mlp(c.intermediate_size));
  input_layernorm = LlamaRMSNorm(builder.child("input_layernorm", c.names->rms_norm), c.hidden_size);
  post_attention_layernorm = LlamaRMSNorm(builder.child("post_attention_layernorm", c.names->rms_norm), c.hidden_size);
}

Tensor DeepseekDecoderLayer::operator()(const Tensor& hidden_in, const PositionEmbeddings& positions,
                                        const Tensor& attention_mask) const {
  const ModuleScope scope(hidden_in.context(), module);
  Tensor residual = hidden_in;
  Tensor hidden_states = input_layernorm(hidden_in);
  AttentionOutputs attention = self_attn(hidden_states, positions, attention_mask);
  hidden_states = std::move(attention.output);  // the weights stay in `_` until the layer returns
  hidden_states = add(residual, hidden_states);
  residual = hidden_states;
  hidden_states = post_attention_layernorm(hidden_states);
  hidden_states = has_experts ? moe(hidden_states) : mlp(hidden_states);
  return add(residual, hidden_states);
}

namespace {

// DeepseekV2Model, DeepseekV3Model and their ForCausalLM.
class DeepseekForCausalLM : public Model {
 public:
  DeepseekForCausalLM(Context& context, const DeepseekConfig& config, const DataConfig& data,
                      const ModelOptions& options)
      : context_(context), config_(config), data_(data), options_(options) {
    const Builder builder{
        &context,           &parameters,
        &buffers,           context.add_module(0, "", -1, config.names->causal_lm, Modality::language),
        Modality::language, options.dtype,
        options.wrapping,   options.quantizer};
    const Builder inner = builder.child("model", config.names->model);
    module_ = inner.module;
    embed_tokens_ = Embedding(inner.child("embed_tokens", "Embedding"), config.vocab_size, config.hidden_size);
    layers_.reserve(static_cast<std::size_t>(config.num_hidden_layers));
    blocks_ = BlockStack(inner);
    for (std::int32_t i = 0; i < config.num_hidden_layers; ++i) {
      layers_.emplace_back(inner.child("layers", config.names->decoder_layer, i), config_, options,
                           i >= config.first_k_dense_replace);
      blocks_.add_block(inner);
    }
    norm_ = LlamaRMSNorm(inner.child("norm", config.names->rms_norm), config.hidden_size);
    LlamaConfig rotary;
    rotary.head_dim = config.qk_rope_head_dim;
    rotary.max_position_embeddings = config.max_position_embeddings;
    rotary_emb_ = LlamaRotaryEmbedding(inner.child("rotary_emb", config.names->rotary_embedding), rotary);
    lm_head_ = Linear(builder.child("lm_head", "Linear"), config.hidden_size, config.vocab_size, false);
    if (config.tie_word_embeddings) tie(lm_head_, embed_tokens_);
  }

  ModelInputs make_inputs(bool with_labels) override {
    const Shape tokens{data_.micro_batch_size, data_.sequence_length};
    ModelInputs batch;
    batch.input_ids = empty(context_, Op::input, tokens, DType::int64, Role::input);
    if (with_labels) batch.labels = empty(context_, Op::input, tokens, DType::int64, Role::input);
    return batch;
  }

  ModelOutputs forward(const ModelInputs& inputs) override {
    const Tensor hidden_states = run(inputs.input_ids, inputs.position_ids);
    return causal_lm_outputs(hidden_states, lm_head_, inputs, loss_function);
  }

 private:
  // V2's rotary embedding: torch.polar of the angles, scaled.
  PositionEmbeddings frequencies(const Tensor& position_ids) const {
    ModuleCall call(context_, rotary_emb_.module);
    const NoGrad no_grad(context_);
    Tensor freqs = to(unsqueeze(position_ids, -1), DType::float32);
    const Tensor inverse = to(rotary_emb_.inv_freq, DType::float32);
    freqs = mul(freqs, inverse);
    Tensor freqs_cis;
    {
      const Tensor ones = empty_like(Op::ones_like, freqs);
      Shape pairs = freqs.sizes();
      pairs.push_back(2);
      freqs_cis = empty(context_, Op::polar, pairs, DType::float32);
    }
    freqs_cis = mul_scalar(freqs_cis);
    return {call.result(unsqueeze(freqs_cis, 1)), {}};
  }

  Tensor run(const Tensor& input_ids, const Tensor& given_position_ids) const {
    ModuleCall call(context_, module_);
    Tensor inputs_embeds = embed_tokens_(input_ids);
    require_input_grad(options_.checkpointing, inputs_embeds, embed_tokens_.module);
    Tensor position_ids = given_position_ids;
    if (!position_ids) {
      position_ids = empty(context_, Op::arange, {inputs_embeds.size(1)}, DType::int64);
      position_ids = add_scalar(position_ids);
      position_ids = unsqueeze(position_ids, 0);
    }
    Tensor causal_mask;  // MTLA's attention has masks of its own
    if (config_.temporal_stride == 0)
      causal_mask = create_causal_mask(inputs_embeds, position_ids, options_.attention == AttentionKind::eager);
    Tensor hidden_states = inputs_embeds;
    PositionEmbeddings positions =
        config_.names->is_v3 ? rotary_emb_(hidden_states, position_ids) : frequencies(position_ids);
    positions.position_ids = position_ids;  // a keyword of each layer, which a checkpoint holds
    const auto block = [&](std::size_t i) -> BlockStack::Forward {
      return [&layer = layers_[i], positions, causal_mask](const Tensor& hidden) {
        return layer(hidden, positions, causal_mask);
      };
    };
    // Two stacks of equal blocks; a checkpointed region may lie in both.
    const std::size_t dense =
        options_.checkpointing.segments.empty()
            ? std::min(layers_.size(),
                       static_cast<std::size_t>(std::max<std::int64_t>(0, config_.first_k_dense_replace)))
            : 0;
    if (dense > 0) hidden_states = blocks_.run(0, dense, std::move(hidden_states), options_.checkpointing, block);
    if (dense < layers_.size())
      hidden_states = blocks_.run(dense, layers_.size(), std::move(hidden_states), options_.checkpointing, block);
    return call.result(norm_(hidden_states));
  }

  Context& context_;
  const DeepseekConfig config_;
  DataConfig data_;
  const ModelOptions options_;
  ModuleId module_ = 0;
  Embedding embed_tokens_;
  std::vector<DeepseekDecoderLayer> layers_;
  BlockStack blocks_;
  LlamaRMSNorm norm_;
  LlamaRotaryEmbedding rotary_emb_;
  Linear lm_head_;
};

}  // namespace

std::unique_ptr<Model> build_deepseek(Context& context, const DeepseekConfig& config, const DataConfig& data,
                                      const ModelOptions& options) {
  return std::make_unique<DeepseekForCausalLM>(context, config, data, options);
}

}  // namespace oometer
