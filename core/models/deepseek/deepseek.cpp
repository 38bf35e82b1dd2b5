#include "models/deepseek/deepseek.h"

#include <algorithm>
#include <utility>

#include "models/deepseek/mtla.h"
#include "models/kit/decoder.h"
#include "models/kit/kept_in_float32.h"
#include "models/ministral3/ministral3.h"
#include "nn/kv_cache.h"
#include "ops/experts.h"
#include "ops/ops.h"
#include "ops/vision.h"

namespace oometer {

DeepseekRouter::DeepseekRouter(const Builder& at, const DeepseekConfig& c) : config(&c) {
  Builder builder = at;
  const ParameterSizes own[] = {{"weight", {c.n_routed_experts, c.hidden_size}}};
  if (at.wrapping) wrapper = at.wrapping->wrap_parameters(builder, own, false);
  module = builder.module;
  weight = builder.parameter(own[0].name, own[0].sizes);
}

Routing DeepseekRouter::operator()(const Tensor& hidden_in) const {
  Context& context = hidden_in.context();
  const NamedParameter own[] = {{"weight", weight}};
  const ParameterValues with_adapters(wrapper, own);
  ModuleCall call(context, module);
  const DeepseekConfig& c = *config;
  const Tensor x = call.argument(hidden_in);
  const std::int64_t tokens = x.numel() / x.size(-1), experts = c.n_routed_experts, in_group = experts / c.n_group;
  const Tensor hidden_states = view(x, {tokens, x.size(-1)});
  Routing routing;
  {
    const Tensor input = to(hidden_states, DType::float32),
                 as_float = to(with_adapters("weight", weight), DType::float32);
    routing.router_logits = linear(input, as_float, {});
  }
  Tensor scores = softmax(routing.router_logits, DType::float32);
  // Which groups are chosen: no gradient comes from there. All of these are names of forward's.
  const auto made = [&](Op op, const Shape& sizes, DType dtype) { return empty(context, op, sizes, dtype); };
  Tensor scores_for_choice = scores, group_scores, group_idx, group_mask, score_mask, chosen;
  if (c.chooses_groups) {
    const Shape groups{tokens, c.n_group};
    {  // a group's best, .max(dim=-1).values
      TopK best = topk(view(scores_for_choice, {tokens, c.n_group, in_group}), 1);
      best.indices.reset();
      group_scores = view(best.values, groups);
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
  scores = scores_for_choice;  // one name there
  TopK best = topk(scores, c.num_experts_per_tok);
  routing.topk_indices = std::move(best.indices);
  routing.topk_weights = mul_scalar(best.values);
  best.values.reset();
  routing.router_logits = call.result(std::move(routing.router_logits));
  routing.topk_weights = call.result(std::move(routing.topk_weights));
  return routing;
}

namespace {

/// AXK2TopkRouter.forward: as best_of_groups, whose names for groups go when these are chosen, where there are any.
Routing best_of_groups_apart(const Router& router, const Tensor& hidden_in) {
  Context& context = hidden_in.context();
  ModuleCall call(context, router.module);
  const Tensor argument = call.argument(hidden_in);
  const std::int64_t tokens = argument.numel() / argument.size(-1), experts = router.weight.size(0),
                     n_group = router.n_group;
  const Tensor hidden_states = view(argument, {tokens, argument.size(-1)});
  Routing routing;
  {
    const Tensor input = to(hidden_states, DType::float32), as_float = to(router.weight, DType::float32);
    routing.router_logits = linear(input, as_float, {});
  }
  const auto made = [&](Op op, const Shape& sizes, DType type) { return empty(context, op, sizes, type); };
  const Tensor scores = sigmoid(routing.router_logits);
  Tensor denominator, scores_for_choice = add(scores, router.e_score_correction_bias);
  if (n_group != 0) {  // apply_group_scoring
    Tensor group_scores, group_idx, group_mask, score_mask;
    {
      TopK best = topk(view(scores_for_choice, {tokens, n_group, experts / n_group}), 2);
      best.indices.reset();
      group_scores = sum(best.values, {-1}, false);
    }
    {
      const Tensor values = made(Op::topk, {tokens, router.topk_group}, DType::float32);
      group_idx = made(Op::topk, {tokens, router.topk_group}, DType::int64);
    }
    group_mask = made(Op::zeros_like, {tokens, n_group}, DType::float32);
    if (n_group > 1) score_mask = made(Op::clone, {tokens, n_group, experts / n_group}, DType::float32);
    Tensor chosen;
    {
      const Tensor as_boolean = made(Op::to_copy, scores.sizes(), DType::boolean);
      chosen = made(Op::bitwise_not, scores.sizes(), DType::boolean);
    }
    scores_for_choice = masked_fill(scores_for_choice, chosen);
  }
  {
    const Tensor values = made(Op::topk, {tokens, router.top_k}, DType::float32);
    routing.topk_indices = made(Op::topk, {tokens, router.top_k}, DType::int64);
  }
  routing.topk_weights = gather(scores, routing.topk_indices);
  if (router.norm_topk_prob) {
    denominator = sum(routing.topk_weights, {-1}, true);
    denominator = add_scalar(denominator);
    routing.topk_weights = div_in_place(routing.topk_weights, denominator);
  }
  routing.topk_weights = mul_scalar(routing.topk_weights);
  routing.router_logits = call.result(std::move(routing.router_logits));
  routing.topk_weights = call.result(std::move(routing.topk_weights));
  return routing;
}

}  // namespace

MoeWithShared make_deepseek_moe(const Builder& builder, const DeepseekConfig& c, const LigerConfig& kernels) {
  MoeWithShared moe;
  moe.module = builder.module;
  moe.experts = Experts(builder.child("experts", c.names->experts), c.n_routed_experts, c.hidden_size,
                        c.moe_intermediate_size, c.hidden_act,
                        {.checkpoint = c.names->its.has_softmax ? ExpertNames{} : ExpertNames{kExpertProjections},
                         .loop = ExpertsLoop::masks_one_more});
  moe.experts.liger = kernels.swiglu;
  Builder gate_at = builder.child("gate", c.names->router);
  if (c.names->its.learns_scaling) gate_at = kept_in_float32(gate_at);
  if (c.names->its.is_v3) {
    ExpertsConfig experts;
    experts.num_experts = c.n_routed_experts;
    experts.num_experts_per_tok = c.num_experts_per_tok;
    experts.n_group = c.n_group;
    experts.topk_group = c.topk_group;
    experts.norm_topk_prob = c.norm_topk_prob;
    Router gate(gate_at, c.hidden_size, experts,
                c.names->its.has_softmax ? best_probabilities_of_groups
                : c.names->its.is_gated  ? best_of_groups_apart
                                         : best_of_groups);
    if (!c.names->its.has_softmax)
      gate.e_score_correction_bias = c.names->its.biases_float32 ? gate_at.buffer({c.n_routed_experts}, DType::float32)
                                                                 : gate_at.kept_buffer({c.n_routed_experts});
    moe.gate = std::move(gate);
  } else {
    moe.gate = DeepseekRouter(gate_at, c);
  }
  moe.shared_experts = LlamaMLP(builder.child("shared_experts", c.names->mlp),
                                c.as_llama(c.moe_intermediate_size * c.n_shared_experts), kernels);
  if (c.names->its.norms_experts)
    moe.norm = LlamaRMSNorm(builder.child("post_mlp_layernorm", c.names->rms_norm), c.hidden_size);
  return moe;
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
  rope = c.turns_at(layer_idx) ? c.qk_rope_head_dim : 0;
  nope = c.qk_head_dim() - rope;
  if (c.names->its.learns_scaling) {
    // made behind everything else
  } else if (c.q_lora_rank == 0) {
    q_proj = Linear(builder.child("q_proj", "Linear"), c.hidden_size, heads * c.qk_head_dim(), false);
  } else {
    q_a_proj = Linear(builder.child("q_a_proj", "Linear"), c.hidden_size, c.q_lora_rank, c.attention_bias);
    q_a_layernorm =
        LlamaRMSNorm(builder.child("q_a_layernorm", c.names->rms_norm), c.q_lora_rank, options.liger.rms_norm);
    if (c.names->its.is_gated)
      q_b_proj = Linear(builder.child("q_gate_proj", "Linear"), 2 * c.q_lora_rank,
                        heads * (c.qk_head_dim() + c.v_head_dim), false);
    else
      q_b_proj = Linear(builder.child("q_b_proj", "Linear"), c.q_lora_rank, heads * c.qk_head_dim(), false);
  }
  kv_a_proj_with_mqa =
      Linear(builder.child("kv_a_proj_with_mqa", "Linear"), c.hidden_size, c.kv_lora_rank + rope, c.attention_bias);
  kv_a_layernorm =
      LlamaRMSNorm(builder.child("kv_a_layernorm", c.names->rms_norm), c.kv_lora_rank, options.liger.rms_norm);
  kv_b_proj = Linear(builder.child("kv_b_proj", "Linear"), c.kv_lora_rank, heads * (nope + c.v_head_dim), false);
  o_proj = Linear(builder.child("o_proj", "Linear"), heads * c.v_head_dim, c.hidden_size, c.attention_bias);
  if (c.names->its.gates_heads) g_proj = Linear(builder.child("g_proj", "Linear"), c.hidden_size, heads, false);
  if (c.temporal_stride != 0)
    hypernet_down = HyperNetwork(builder.child("hypernet_down", "HyperNetwork"), c.kv_lora_rank);
  if (c.chooses_tokens() && (c.shares_topk.empty() || !c.shares_topk[layer_idx]))
    indexer.emplace(builder.child("indexer", c.names->indexer), c, rope != 0);
  if (c.names->its.learns_scaling) {
    q_proj = Linear(builder.child("q_proj", "Linear"), c.hidden_size, heads * c.qk_head_dim(), false);
    softmax_scaling = SoftmaxScaling(builder.child("softmax_scaling", "MistralLarge4TextSoftmaxScaling"), heads);
  }
}

SoftmaxScaling::SoftmaxScaling(const Builder& builder, std::int64_t heads)
    : scale(builder.parameter("scale", {heads})), bias(builder.parameter("bias", {heads})), module(builder.module) {}

Tensor SoftmaxScaling::operator()(const Tensor& query, const Tensor& position_ids, bool heads_first) const {
  Context& context = query.context();
  ModuleCall call(context, module);
  const Shape& sizes = position_ids.sizes();
  const std::int64_t heads = scale.size(0);
  Tensor log_pos;
  {
    const Tensor as_float = [&] {
      const Tensor next = empty(context, Op::add, sizes, DType::int64);
      return empty(context, Op::to_copy, sizes, DType::float32);
    }();
    log_pos = empty(context, Op::log, sizes, DType::float32);
  }
  Tensor lowered = to(log_pos, query.dtype());
  const Tensor own_scale = to(scale, query.dtype()), own_bias = to(bias, query.dtype());
  log_pos = std::move(lowered);
  Tensor scaled;
  {
    const Shape of_heads = heads_first ? Shape{1, heads, 1} : Shape{1, 1, heads};
    const Tensor by_position = mul(view(own_scale, of_heads), unsqueeze(log_pos, heads_first ? 1 : 2));
    scaled = add(by_position, view(own_bias, of_heads));
  }
  return call.result(mul(query, unsqueeze(scaled, -1)));
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
  if (!config->names->its.is_v3) return rotate_complex(q, k, positions.cos);
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

Tensor DeepseekAttention::project_queries(const Tensor& hidden_states, Tensor* q_resid) const {
  Tensor q;
  if (config->q_lora_rank == 0) {
    q = q_proj(hidden_states);
  } else {
    Tensor compressed = q_a_proj(hidden_states);
    compressed = q_a_layernorm(compressed);
    q = q_b_proj(compressed);
    if (q_resid) *q_resid = std::move(compressed);
  }
  return heads_of(q, config->qk_head_dim());
}

AttentionInputs DeepseekAttention::expand_kv(const Tensor& kv_nope, const Tensor& k_rot) const {
  const DeepseekConfig& c = *config;
  const std::int64_t batch = kv_nope.size(0), length = kv_nope.size(2), heads = c.num_attention_heads;
  Tensor expanded = kv_b_proj(kv_nope);
  expanded = transpose(view(expanded, {batch, length, heads, nope + c.v_head_dim}), 1, 2);
  TensorList parts = split(expanded, {nope, c.v_head_dim}, -1);
  const Tensor shared = expand(k_rot, {batch, heads, length, rope});
  AttentionInputs inputs;
  inputs.value = parts[1];
  inputs.key = empty(kv_nope.context(), Op::empty, {batch, heads, length, c.qk_head_dim()}, expanded.dtype());
  inputs.key = copy_into(inputs.key, parts[0]);
  inputs.key = copy_into(inputs.key, shared);
  return inputs;
}

Indexer::Indexer(const Builder& builder, const DeepseekConfig& c, bool has_rotary)
    : config(&c),
      wq_b(builder.child("wq_b", "Linear"), c.q_lora_rank != 0 ? c.q_lora_rank : c.hidden_size,
           c.index_n_heads * c.index_head_dim, false),
      wk(builder.child("wk", "Linear"), c.hidden_size, c.index_head_dim, false),
      weights_proj(),
      k_norm(builder.child("k_norm", "LayerNorm"), torch_layer_norm, {c.index_head_dim}, true),
      turns(has_rotary),
      module(builder.module) {
  weights_proj = Linear(builder.child("weights_proj", "Linear"), c.hidden_size, c.index_n_heads, false);
  if (!c.names->its.learns_scaling) return;
  q_input_norm = Norm(builder.child("q_input_norm", "LayerNorm"), torch_layer_norm, {c.hidden_size}, true);
  softmax_scaling =
      SoftmaxScaling(builder.child("softmax_scaling", "MistralLarge4TextSoftmaxScaling"), c.index_n_heads);
}

Tensor Indexer::operator()(const Tensor& hidden_states, const Tensor& q_resid, const PositionEmbeddings& positions,
                           const Tensor& attention_mask) const {
  Context& context = hidden_states.context();
  ModuleCall call(context, module);
  const NoGrad no_grad(context);
  const DeepseekConfig& c = *config;
  const std::int64_t batch = hidden_states.size(0), length = hidden_states.size(1), heads = c.index_n_heads,
                     turned = c.qk_rope_head_dim, head_dim = c.index_head_dim;
  const std::vector<std::int64_t> parts{turned, head_dim - turned};
  Tensor q;
  if (q_input_norm) {
    q = q_input_norm(hidden_states);
    q = wq_b(q);
    q = view(q, {batch, length, heads, head_dim});
    q = softmax_scaling(q, positions.position_ids, false);
  } else {
    q = view(wq_b(q_resid), {batch, length, heads, head_dim});
  }
  Tensor q_rot, q_pass, k_rot, k_pass;
  const auto cut = [&](const Tensor& x, Tensor& rot, Tensor& pass) {
    const TensorList both = split(x, parts, -1);
    rot = both[0];
    pass = both[1];
  };
  if (turns) cut(q, q_rot, q_pass);
  Tensor k;
  {
    const Tensor projected = wk(hidden_states);
    k = unsqueeze(k_norm(projected), 2);
  }
  if (turns) {
    cut(k, k_rot, k_pass);
    DeepseekAttention::Rotated rotated;
    if (c.names->its.indexer == IndexerRotary::pairs) {
      rotated = rotate_interleaved(q_rot, k_rot, unsqueeze(slice(positions.cos, -1, 0, turned / 2), 2),
                                   unsqueeze(slice(positions.sin, -1, 0, turned / 2), 2));
    } else {
      const Tensor cos = unsqueeze(positions.cos, 2), sin = unsqueeze(positions.sin, 2);
      rotated.q = rotate(q_rot, cos, sin);
      rotated.k = rotate(k_rot, cos, sin);
    }
    q_rot = std::move(rotated.q);
    k_rot = std::move(rotated.k);
  }
  if (turns) {
    q = cat({q_rot, q_pass}, -1);
    k = cat({k_rot, k_pass}, -1);
  }
  k = view(k, {batch, length, head_dim});
  Tensor scores;
  {
    Tensor product;
    {
      const Tensor queries = to(q, DType::float32), keys = to(transpose(k, 1, 2), DType::float32);
      const Tensor lowered = autocast_lower(unsqueeze(keys, 1));
      product = matmul(queries, expand(lowered, {batch, length, head_dim, length}));
    }
    scores = mul_scalar(product);
  }
  scores = relu(scores);
  Tensor weights;
  {
    Tensor projected;
    {
      const Tensor cast = to(hidden_states, weights_proj.weight.dtype());
      projected = weights_proj(cast);
    }
    const Tensor as_float = to(projected, DType::float32);
    projected.reset();
    weights = mul_scalar(as_float);
  }
  Tensor index_scores = view(matmul(unsqueeze(weights, 2), scores), {batch, length, length});
  if (attention_mask.dtype() == DType::boolean) {
    const Tensor unseen = empty_like(Op::bitwise_not, attention_mask);
    index_scores = masked_fill(index_scores, unseen);
  } else {
    index_scores = add(index_scores, attention_mask);
  }
  TopK best = topk(index_scores, std::min(c.index_topk, length));
  best.values.reset();
  return call.result(to(best.indices, DType::int32));
}

namespace {

/// Where a token is not among those that were chosen: [b, 1, s, keys].
Tensor not_chosen(const Tensor& topk_indices, std::int64_t keys) {
  Context& context = topk_indices.context();
  const Shape sizes{topk_indices.size(0), topk_indices.size(1), keys};
  const Tensor ones = empty(context, Op::ones_like, sizes, DType::boolean);
  const Tensor indices = to(topk_indices, DType::int64);
  // scatter: a copy, in which it writes
  const Tensor mask = empty(context, Op::clone, sizes, DType::boolean);
  return unsqueeze(mask, 1);
}

/// `attention_mask` of what is left of it.
Tensor without(const Tensor& attention_mask, const Tensor& index_mask) {
  if (attention_mask.dtype() != DType::boolean) return masked_fill(attention_mask, index_mask);
  const Tensor chosen = empty_like(Op::bitwise_not, index_mask);
  return pointwise(Op::bitwise_and, {&attention_mask, &chosen}, DType::boolean);
}

}  // namespace

AttentionOutputs DeepseekAttention::operator()(const Tensor& hidden_states, const PositionEmbeddings& positions,
                                               const Tensor& attention_mask) const {
  Context& context = hidden_states.context();
  ModuleCall self(context, module);
  const DeepseekConfig& c = *config;
  if (c.temporal_stride != 0) return attend_temporally(*this, hidden_states, positions, *context.past_key_values);
  const std::int64_t batch = hidden_states.size(0), length = hidden_states.size(1);
  Tensor q_resid, q_compressed, gate_states, q;
  if (c.names->its.is_gated) {
    q_compressed = q_a_proj(hidden_states);
    q_resid = q_a_layernorm(q_compressed);
    Tensor query_gate_states;
    {
      const Tensor both = cat({q_resid, q_compressed}, -1);
      query_gate_states = q_b_proj(both);
    }
    query_gate_states = view(query_gate_states, {batch, length, c.num_attention_heads, c.qk_head_dim() + c.v_head_dim});
    const TensorList parts = split(query_gate_states, {c.qk_head_dim(), c.v_head_dim}, -1);
    q = transpose(parts[0], 1, 2);
    gate_states = reshape(parts[1], {batch, length, c.num_attention_heads * c.v_head_dim});
  } else {
    q = project_queries(hidden_states, c.chooses_tokens() ? &q_resid : nullptr);
  }
  TensorList queries = split(q, {nope, rope}, -1);
  const Tensor compressed_kv = kv_a_proj_with_mqa(hidden_states);
  TensorList latents = split(compressed_kv, {c.kv_lora_rank, rope}, -1);
  Tensor k_nope = kv_a_layernorm(latents[0]);
  k_nope = view(k_nope, {batch, 1, length, c.kv_lora_rank});
  Tensor k_pe = view(latents[1], {batch, 1, length, rope}), q_pe = queries[1];
  if (rope != 0) {
    Rotated rotated = turn(queries[1], k_pe, positions);
    q_pe = std::move(rotated.q);
    k_pe = std::move(rotated.k);
  }
  // The cache keeps what is still compressed.
  if (KvCache* const cache = context.past_key_values) {
    KvCache::States states = cache->update(layer_idx, k_nope, k_pe);
    k_nope = std::move(states.keys);
    k_pe = std::move(states.values);
  }
  Tensor query_states = cat({queries[0], q_pe}, -1);
  if (c.names->its.scales_queries) query_states = scale_by_positions(query_states, positions);
  if (softmax_scaling.scale) query_states = softmax_scaling(query_states, positions.position_ids, true);
  const AttentionInputs inputs = expand_kv(k_nope, k_pe);
  Tensor topk_indices, index_mask, sparse_mask;
  if (indexer) {
    topk_indices = (*indexer)(hidden_states, q_resid, positions, select(attention_mask, 1, 0));
  } else {
    topk_indices = positions.prev_topk_indices;
  }
  if (positions.topk_indices && !context.recomputing) *positions.topk_indices = topk_indices;
  if (topk_indices) {
    index_mask = not_chosen(topk_indices, length);
    sparse_mask = without(attention_mask, index_mask);
  }
  AttentionOutputs attention =
      attention_forward(call, query_states, inputs.key, inputs.value, sparse_mask ? sparse_mask : attention_mask,
                        {positions.position_ids, positions.rows, positions.cu_seq_lens});
  Tensor gate;
  if (c.names->its.gates_heads) {
    gate = g_proj(hidden_states);
    gate = to(gate, DType::float32);
    gate = sigmoid(gate);
    gate = to(gate, hidden_states.dtype());
    attention.output = mul(attention.output, unsqueeze(gate, -1));
  }
  const Shape& heads = attention.output.sizes();
  attention.output = reshape(attention.output, {heads[0], heads[1], checked_product(heads[2], heads[3])});
  if (gate_states) {
    Tensor scale = to(gate_states, DType::float32);
    scale = sigmoid(scale);
    scale = mul(attention.output, scale);
    attention.output = to(scale, attention.output.dtype());
  }
  attention.output = self.result(o_proj(attention.output));
  return attention;
}

DeepseekDecoderLayer::DeepseekDecoderLayer(const Builder& builder, const DeepseekConfig& c, const ModelOptions& options,
                                           bool with_experts)
    : PreNormLayer(builder),
      self_attn_(builder.child("self_attn", c.names->attention), c, options),
      module_(builder.module) {
  if (with_experts)
    moe_ = make_deepseek_moe(builder.child("mlp", c.names->moe), c, options.liger);
  else
    mlp_ = LlamaMLP(builder.child("mlp", c.names->mlp), c.as_llama(c.intermediate_size), options.liger);
  if (!c.names->its.is_gated) {
    make_norms(builder, c.names->rms_norm, c.hidden_size, options.liger.rms_norm);
    return;
  }
  const char* const gated = "AXK2GatedRMSNorm";
  input_layernorm_ = GatedNorm(builder.child("input_layernorm", gated), c);
  if (with_experts)
    post_attention_layernorm_ = GatedNorm(builder.child("post_attention_layernorm", gated), c);
  else
    post_attention_layernorm_ =
        LlamaRMSNorm(builder.child("post_attention_layernorm", c.names->rms_norm), c.hidden_size);
}

GatedNorm::GatedNorm(const Builder& builder, const DeepseekConfig& c)
    : norm(builder.child("norm", c.names->rms_norm), c.hidden_size), module(builder.module) {
  const Builder mlp = builder.child("mlp", "AXK2GateMLP");
  mlp_module = mlp.module;
  fc1 = Linear(mlp.child("fc1", "Linear"), c.hidden_size, c.gated_norm_rank, false);
  fc2 = Linear(mlp.child("fc2", "Linear"), c.gated_norm_rank, c.hidden_size, false);
}

Tensor GatedNorm::operator()(const Tensor& argument) const {
  ModuleCall call(argument.context(), module);
  const Tensor y = norm(call.argument(argument));
  Tensor gate;
  {
    ModuleCall mlp(argument.context(), mlp_module);
    gate = fc1(mlp.argument(y));
    gate = silu(gate);
    gate = mlp.result(fc2(gate));
  }
  gate = to(gate, DType::float32);
  gate = sigmoid(gate);
  gate = mul(y, gate);
  return call.result(to(gate, y.dtype()));
}

Tensor DeepseekDecoderLayer::operator()(const Tensor& hidden_in, const PositionEmbeddings& positions,
                                        const Tensor& attention_mask) const {
  if (!input_layernorm_) return PreNormLayer::operator()(hidden_in, positions, attention_mask);
  const ModuleScope scope(hidden_in.context(), module_);
  Tensor residual = hidden_in;
  Tensor hidden_states = input_layernorm_(hidden_in);
  AttentionOutputs attention = self_attn(hidden_states, positions, attention_mask);
  hidden_states = std::move(attention.output);
  hidden_states = add(residual, hidden_states);
  residual = hidden_states;
  hidden_states = post_attention_layernorm_(hidden_states);
  hidden_states = mlp(hidden_states);
  return add(residual, hidden_states);
}

namespace {

// DeepseekV2RotaryEmbedding.forward: torch.polar of the angles, scaled.
PositionEmbeddings frequencies(const LlamaRotaryEmbedding& rotary_emb, const Tensor& position_ids, DType) {
  Context& context = position_ids.context();
  ModuleCall call(context, rotary_emb.module);
  const NoGrad no_grad(context);
  Tensor freqs = to(unsqueeze(position_ids, -1), DType::float32);
  const Tensor inverse = to(rotary_emb.inv_freq, DType::float32);
  freqs = mul(freqs, inverse);
  Tensor freqs_cis;
  {
    const Tensor ones = empty_like(Op::ones_like, freqs);
    Shape pairs = freqs.sizes();
    pairs.push_back(2);
    freqs_cis = empty(context, Op::polar, pairs, DType::float32);
  }
  freqs_cis = mul_scalar(freqs_cis);
  return {call.result(unsqueeze(freqs_cis, 1)), {}};
}

// MistralLarge4TextRotaryEmbedding.forward
PositionEmbeddings scaled_angles(const LlamaRotaryEmbedding& rotary_emb, const Tensor& alpha,
                                 const Tensor& position_ids, DType dtype) {
  ModuleCall call(position_ids.context(), rotary_emb.module);
  const NoGrad no_grad(position_ids.context());
  Tensor scaled_inv_freq, freqs, emb;
  {
    const Tensor factor = exp(alpha);
    scaled_inv_freq = mul(rotary_emb.inv_freq, factor);
  }
  {
    const Tensor as_float = to(unsqueeze(position_ids, -1), DType::float32);
    freqs = mul(as_float, scaled_inv_freq);
  }
  emb = cat({freqs, freqs}, -1);
  const auto of = [&](Op op) {
    const Tensor values = pointwise(op, {&emb}, DType::float32);
    return mul_scalar(values);
  };
  const Tensor cos = of(Op::cos), sin = of(Op::sin);
  Tensor cos_lowered = to(cos, dtype);
  return {call.result(std::move(cos_lowered)), call.result(to(sin, dtype))};
}

}  // namespace

// DeepseekV2Model, DeepseekV3Model
DecoderParts deepseek_parts(Context& context, const DeepseekConfig& config_in, const ModelOptions& options) {
  const auto config = std::make_shared<const DeepseekConfig>(config_in);  // its layers look at it
  const std::size_t dense = static_cast<std::size_t>(std::max<std::int64_t>(0, config->first_k_dense_replace));
  DecoderParts parts;
  parts.layer = [config, options, dense](const Builder& layer, std::size_t i) {
    return std::make_unique<DeepseekDecoderLayer>(layer, *config, options, i >= dense);
  };
  if (!config->names->its.is_v3) parts.rotary = frequencies;
  if (config->names->its.learns_scaling) {
    const auto alpha = std::make_shared<Tensor>();
    parts.rest = [alpha, size = config->qk_rope_head_dim / 2](const Builder& decoder) {
      *alpha = decoder.buffer({size}, DType::float32);
    };
    parts.rotary = [alpha](const LlamaRotaryEmbedding& rotary_emb, const Tensor& position_ids, DType dtype) {
      return scaled_angles(rotary_emb, *alpha, position_ids, dtype);
    };
    parts.logits = softcap;
  }
  parts.always_masks = config->chooses_tokens();
  parts.shares_topk = config->names->its.shares_topk;
  // What a region gives beside its states lives through its backward there.
  if (parts.shares_topk && options.checkpointing.mode == CheckpointMode::reentrant)
    context.refusal = Error{"not-modelled", "/training/activation_checkpointing",
                            "found \"reentrant\", which is not supported yet where layers share the tokens that they "
                            "choose; expected \"non-reentrant\""};
  if (parts.shares_topk) parts.kind = [](std::size_t i) { return static_cast<int>(i); };
  parts.makes_masks = config->temporal_stride == 0;  // MTLA's attention has masks of its own
  return parts;
}

// Their ForCausalLM, or what classifies.
std::unique_ptr<Model> build_deepseek(Context& context, const DeepseekConfig& config, const DataConfig& data,
                                      const ModelOptions& options) {
  return make_language_model(context, config.as_llama(config.intermediate_size), data, options,
                             deepseek_parts(context, config, options));
}

}  // namespace oometer
