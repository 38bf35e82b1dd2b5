#include "models/inkling/inkling.h"

#include <optional>
#include <utility>

#include "models/kit/causal_conv.h"
#include "models/kit/decoder.h"
#include "models/kit/kept_in_float32.h"
#include "models/kit/mixture.h"
#include "models/kit/position_bias.h"
#include "models/llama/llama.h"
#include "nn/activation.h"
#include "ops/experts.h"
#include "ops/logsumexp.h"
#include "ops/losses.h"
#include "ops/ops.h"
#include "ops/vision.h"

/// Names and order of steps are the modeling file's.
namespace oometer {

namespace {

Norm norm_of(const Builder& builder, std::int64_t size) { return {builder, rms_norm, {size}}; }

/// InklingShortConvolution, in float32.
struct ShortConvolution {
  ShortConvolution() = default;
  ShortConvolution(const Builder& builder, std::int64_t size, const InklingConfig& c)
      : conv1d(kept_in_float32(builder.child("conv1d", "Conv1d")), size, c.conv_kernel_size, false),
        module(builder.module) {}

  Tensor operator()(const Tensor& argument, const Tensor& conv_mask) const {
    ModuleCall call(argument.context(), module);
    const Tensor given = call.argument(argument);
    if (given.context().modules) given.context().modules->read(conv1d.weight);  // the module that has it is not called
    Tensor hidden_states = to(given, DType::float32);
    const Tensor residual = hidden_states;
    hidden_states = apply_mask_to_padding_states(hidden_states, conv_mask);
    hidden_states = transpose(hidden_states, 1, 2);
    hidden_states = conv1d(hidden_states, std::nullopt);
    hidden_states = transpose(hidden_states, 1, 2);
    {
      const Tensor sum = add(hidden_states, residual);
      hidden_states = to(sum, given.dtype());
    }
    return call.result(hidden_states);
  }

  CausalConv conv1d;
  ModuleId module = 0;
};

/// InklingRelativeLogits: a bias for each query and key, by how far they are apart.
struct RelativeLogits {
  RelativeLogits(const Builder& builder, std::int64_t d_rel, std::int64_t rel_extent)
      : proj(builder.parameter("proj", {d_rel, rel_extent})), module(builder.module) {}

  Tensor operator()(const Tensor& argument) const {
    Context& context = argument.context();
    ModuleCall call(context, module);
    const Tensor relative_states = call.argument(argument);
    const std::int64_t batch = relative_states.size(0), length = relative_states.size(1),
                       heads = relative_states.size(2);
    const Tensor rel_logits = transpose(matmul(relative_states, proj), 1, 2);
    const Shape pairs{1, 1, length, length};
    const Tensor distance = empty(context, Op::sub, pairs, DType::int64);
    const Tensor gather_index = expand(empty(context, Op::clamp, pairs, DType::int64), {batch, heads, length, length});
    const Tensor position_bias = gather(rel_logits, gather_index);
    Tensor outside;
    {
      const Tensor behind = pointwise(Op::lt, {&distance}, DType::boolean),
                   beyond = pointwise(Op::ge, {&distance}, DType::boolean);
      outside = pointwise(Op::bitwise_or, {&behind, &beyond}, DType::boolean);
    }
    return call.result(masked_fill(position_bias, outside));
  }

  Tensor proj;
  ModuleId module;
};

AttentionOutputs eager(const AttentionCall& call, const AttentionInputs& states, const Tensor& mask,
                       const Tensor& position_bias) {
  const std::int64_t heads = states.query.size(1);
  const Tensor key_states = repeat_kv(states.key, heads), value_states = repeat_kv(states.value, heads);
  Tensor attn_weights = matmul(states.query, transpose(key_states, 2, 3));
  attn_weights = mul_scalar(attn_weights);
  attn_weights = add(attn_weights, position_bias);
  if (mask) attn_weights = add(attn_weights, mask);
  {
    const Tensor probabilities = softmax(attn_weights, DType::float32);
    attn_weights = to(probabilities, states.query.dtype());
  }
  attn_weights = dropout(attn_weights, call.dropout);
  const Tensor attn_output = matmul(attn_weights, value_states);
  return {contiguous(transpose(attn_output, 1, 2)), attn_weights};
}

/// sdpa_attention_forward: heads of keys are shared where there is no mask beside the bias, else repeated.
AttentionOutputs sdpa(const AttentionCall& call, const AttentionInputs& states, const Tensor& mask,
                      const Tensor& position_bias) {
  const Tensor& query = states.query;
  Context& context = query.context();
  if (context.autocast.enabled)  // torch.where(mask, position_bias, the lowest float32)
    context.refusal = Error{"inconsistent", "/training/attention",
                            "found \"sdpa\" with AMP, where Inkling's bias has a type that overflows; expected "
                            "\"eager\""};
  const bool repeats = mask || states.key.size(3) > 256;
  const Tensor key = repeats ? repeat_kv(states.key, query.size(1)) : states.key,
               value = repeats ? repeat_kv(states.value, query.size(1)) : states.value;
  const Tensor biased = position_bias_mask(call, position_bias, mask);
  const AttentionOptions options{false, query.size(1) != key.size(1), query.context().training ? call.dropout : 0};
  AttentionCall masked = call;
  masked.causal = false;
  // A bias is no mask that kernels for shared heads take.
  const AttentionKernel kernel =
      options.enable_gqa ? AttentionKernel::math : choose_kernel(masked, query, key, value, biased);
  const Tensor output = scaled_dot_product_attention(kernel, query, key, value, biased, options);
  return {contiguous(transpose(output, 1, 2)), {}};
}

struct InklingAttention {
  InklingAttention(const Builder& builder, const InklingConfig& c, const ModelOptions& options, bool slides)
      : heads(slides ? c.swa_num_attention_heads : c.num_attention_heads),
        head_dim(slides ? c.swa_head_dim : c.head_dim),
        scales(!slides && c.scales_logarithmically),
        call(attention_call(c, options)),
        module(builder.module) {
    const std::int64_t kv_width = head_dim * (slides ? c.swa_num_key_value_heads : c.num_key_value_heads);
    const auto linear = [&](const char* name, std::int64_t in, std::int64_t out) {
      return Linear(builder.child(name, "Linear"), in, out, false);
    };
    q_proj = linear("q_proj", c.hidden_size, heads * head_dim);
    k_proj = linear("k_proj", c.hidden_size, kv_width);
    v_proj = linear("v_proj", c.hidden_size, kv_width);
    r_proj = linear("r_proj", c.hidden_size, heads * c.d_rel);
    o_proj = linear("o_proj", heads * head_dim, c.hidden_size);
    k_sconv = ShortConvolution(builder.child("k_sconv", "InklingShortConvolution"), kv_width, c);
    v_sconv = ShortConvolution(builder.child("v_sconv", "InklingShortConvolution"), kv_width, c);
    q_norm = norm_of(builder.child("q_norm", kInkling.rms_norm), head_dim);
    k_norm = norm_of(builder.child("k_norm", kInkling.rms_norm), head_dim);
    rel_logits_proj.emplace(builder.child("rel_logits_proj", "InklingRelativeLogits"), c.d_rel,
                            slides ? c.sliding_window : c.rel_extent);
  }

  AttentionOutputs operator()(const Tensor& argument, const Tensor& conv_mask, const Tensor& attention_mask) const {
    Context& context = argument.context();
    ModuleCall self(context, module);
    const Tensor hidden_states = self.argument(argument);
    const std::int64_t batch = hidden_states.size(0), length = hidden_states.size(1);
    AttentionInputs states;
    states.query = q_proj(hidden_states);
    {
      const Tensor key = k_proj(hidden_states);
      states.key = k_sconv(key, conv_mask);
    }
    {
      const Tensor value = v_proj(hidden_states);
      states.value = v_sconv(value, conv_mask);
    }
    Tensor relative_states = r_proj(hidden_states);
    const auto by_head = [&](const Tensor& x) { return view(x, {batch, length, x.size(2) / head_dim, head_dim}); };
    states.query = transpose(q_norm(by_head(states.query)), 1, 2);
    states.key = transpose(k_norm(by_head(states.key)), 1, 2);
    states.value = transpose(by_head(states.value), 1, 2);
    const auto positions = [&] {
      const Tensor range = empty(context, Op::arange, {length}, DType::int64);
      return add_scalar(range);
    };
    const Tensor kv_positions = positions(), q_positions = positions();
    relative_states = view(relative_states, {batch, length, heads, relative_states.size(2) / heads});
    Tensor position_bias = (*rel_logits_proj)(relative_states), effective_n, tau;
    if (scales) {
      {
        const Tensor from_one = add_scalar(q_positions);
        effective_n = to(from_one, DType::float32);
      }
      for (const Op op : {Op::div, Op::clamp, Op::log, Op::mul, Op::add})
        tau = pointwise(op, {tau ? &tau : &effective_n}, DType::float32);
      tau = view(tau, {1, 1, length, 1});
      for (Tensor* x : {&states.query, &position_bias}) {
        Tensor scaled = to(*x, DType::float32);
        scaled = mul(scaled, tau);
        *x = to(scaled, x->dtype());
      }
    }
    AttentionOutputs attention = call.kind == AttentionKind::eager ? eager(call, states, attention_mask, position_bias)
                                                                   : sdpa(call, states, attention_mask, position_bias);
    attention.output = reshape(attention.output, {batch, length, heads * head_dim});
    attention.output = self.result(o_proj(attention.output));
    return attention;
  }

  std::int64_t heads, head_dim;
  bool scales;
  AttentionCall call;
  Linear q_proj, k_proj, v_proj, r_proj, o_proj;
  ShortConvolution k_sconv, v_sconv;
  Norm q_norm, k_norm;
  std::optional<RelativeLogits> rel_logits_proj;
  ModuleId module;
};

/// InklingMLP: Llama's, scaled by a parameter.
struct InklingMLP {
  InklingMLP(const Builder& builder, const InklingConfig& c)
      : mlp(builder, c), global_scale(builder.parameter("global_scale", {1})) {}

  Tensor operator()(const Tensor& x) const {
    const Tensor hidden_states = mlp(x);
    const ModuleScope scope(x.context(), mlp.module);
    return mul(hidden_states, global_scale);
  }

  LlamaMLP mlp;
  Tensor global_scale;
};

/// InklingTopkRouter, in float32: shared experts are weighed with those that are chosen.
struct TopkRouter {
  TopkRouter(const Builder& builder, const InklingConfig& c)
      : top_k(c.experts.num_experts_per_tok), shared(c.n_shared_experts), module(builder.module) {
    weight = builder.parameter("weight", {c.experts.num_experts + shared, c.hidden_size});
    global_scale = kept_in_float32(builder).parameter("global_scale", {1});
    e_score_correction_bias = builder.kept_buffer({c.experts.num_experts});
  }

  struct Chosen {
    Tensor router_logits, topk_weights, topk_indices, shared_gammas;
  };

  Chosen operator()(const Tensor& argument) const {
    Context& context = argument.context();
    ModuleCall call(context, module);
    const Tensor hidden_states = call.argument(argument);
    const std::int64_t hidden = hidden_states.size(-1), rows = hidden_states.numel() / hidden,
                       routed = weight.size(0) - shared;
    const Tensor flat = view(hidden_states, {rows, hidden});
    Chosen chosen;
    {
      const Scoped<bool> autocast(context.autocast.enabled, false);
      Tensor router_logits;
      {
        const Tensor states = to(flat, DType::float32), weights = to(weight, DType::float32);
        router_logits = linear(states, weights, {});
      }
      const Tensor scores = sigmoid(router_logits), routed_scores = slice(scores, 1, 0, routed);
      Tensor scores_for_choice;
      {
        const Tensor bias = to(e_score_correction_bias, DType::float32);
        scores_for_choice = add(routed_scores, bias);
      }
      chosen.topk_indices = topk(scores_for_choice, top_k).indices;
      chosen.router_logits = slice(router_logits, 1, 0, routed);
      const Tensor shared_logits = slice(router_logits, 1, routed, shared);
      Tensor topk_logits;
      {
        const Tensor of_chosen = gather(chosen.router_logits, chosen.topk_indices);
        topk_logits = cat({of_chosen, shared_logits}, -1);
      }
      const Tensor topk_log_probs = log_sigmoid(topk_logits);
      {
        Tensor shares = logsumexp(topk_log_probs, true);
        shares = sub(topk_log_probs, shares);
        chosen.topk_weights = exp(shares);
      }
      {
        const Tensor scaled = mul_scalar(chosen.topk_weights), scale = to(global_scale, DType::float32);
        chosen.topk_weights = mul(scaled, scale);
      }
      chosen.topk_weights = to(chosen.topk_weights, hidden_states.dtype());
      chosen.shared_gammas = contiguous(slice(chosen.topk_weights, 1, top_k, shared));
      chosen.topk_weights = contiguous(slice(chosen.topk_weights, 1, 0, top_k));
    }
    for (Tensor* x : {&chosen.topk_weights, &chosen.shared_gammas}) *x = call.result(*x);
    return chosen;
  }

  Tensor weight, global_scale, e_score_correction_bias;
  std::int64_t top_k, shared;
  ModuleId module;
};

/// InklingSharedExperts: all in one product.
struct SharedExperts {
  SharedExperts(const Builder& builder, const InklingConfig& c)
      : count(c.n_shared_experts), act_fn(c.hidden_act), module(builder.module) {
    const std::int64_t inner = c.experts.intermediate_size;
    gate_proj = builder.parameter("gate_proj", {count, inner, c.hidden_size});
    up_proj = builder.parameter("up_proj", {count, inner, c.hidden_size});
    down_proj = builder.parameter("down_proj", {count, c.hidden_size, inner});
  }

  static Tensor product(const Tensor& a, const Tensor& b) {
    const Tensor second = autocast_lower(transpose(b, 1, 2)), first = autocast_lower(a);
    return bmm(first, second);
  }

  Tensor operator()(const Tensor& argument, const Tensor& given_gammas) const {
    ModuleCall call(argument.context(), module);
    const Tensor given = call.argument(argument);
    const std::int64_t hidden = given.size(-1), rows = given.numel() / hidden;
    const Tensor hidden_states = expand(reshape(given, {1, rows, hidden}), {count, rows, hidden});
    const Tensor gammas = transpose(view(call.argument(given_gammas), {rows, count, 1}), 0, 1);
    const Tensor gate = product(hidden_states, gate_proj), up = product(hidden_states, up_proj);
    Tensor activated = activate(act_fn, gate);
    activated = mul(activated, up);
    activated = mul(activated, gammas);
    const Tensor down = product(activated, down_proj);
    Tensor out = to(down, DType::float32);
    out = sum(out, {0}, false);
    out = to(out, hidden_states.dtype());
    return call.result(view(out, given.sizes()));
  }

  std::int64_t count;
  Activation act_fn;
  Tensor gate_proj, up_proj, down_proj;
  ModuleId module;
};

struct InklingMoE {
  InklingMoE(const Builder& builder, const InklingConfig& c)
      : gate(builder.child("gate", "InklingTopkRouter"), c),
        experts(make_experts(builder, "InklingExperts", c, {.checkpoint = {}})),
        shared_experts(builder.child("shared_experts", "InklingSharedExperts"), c),
        module(builder.module) {}

  Tensor operator()(const Tensor& argument) const {
    ModuleCall call(argument.context(), module);
    const Tensor residuals = call.argument(argument);
    const TopkRouter::Chosen chosen = gate(residuals);
    const std::int64_t hidden = residuals.size(-1);
    Tensor hidden_states = view(residuals, {residuals.numel() / hidden, hidden});
    hidden_states = view(experts(hidden_states, chosen.topk_indices, chosen.topk_weights), residuals.sizes());
    {
      const Tensor shared = shared_experts(residuals, chosen.shared_gammas);
      hidden_states = add(hidden_states, shared);
    }
    return call.result(hidden_states);
  }

  TopkRouter gate;
  Experts experts;
  SharedExperts shared_experts;
  ModuleId module;
};

class InklingDecoderLayer : public DecoderLayer {
 public:
  InklingDecoderLayer(const Builder& builder, const InklingConfig& c, const ModelOptions& options, std::size_t index)
      : self_attn_(builder.child("self_attn", kInkling.attention), c, options, c.window_of(index) != 0),
        module_(builder.module) {
    if (c.experts.are_in(index))
      mlp_ = InklingMoE(builder.child("mlp", "InklingMoE"), c);
    else
      mlp_ = InklingMLP(builder.child("mlp", kInkling.mlp), c);
    input_layernorm_ = norm_of(builder.child("input_layernorm", kInkling.rms_norm), c.hidden_size);
    post_attention_layernorm_ = norm_of(builder.child("post_attention_layernorm", kInkling.rms_norm), c.hidden_size);
    attn_sconv_ = ShortConvolution(builder.child("attn_sconv", "InklingShortConvolution"), c.hidden_size, c);
    mlp_sconv_ = ShortConvolution(builder.child("mlp_sconv", "InklingShortConvolution"), c.hidden_size, c);
  }

  Tensor operator()(const Tensor& hidden_in, const PositionEmbeddings& positions,
                    const Tensor& attention_mask) const override {
    const ModuleScope scope(hidden_in.context(), module_);
    const Tensor& conv_mask = positions.padding_mask;
    Tensor hidden_states = input_layernorm_(hidden_in);
    AttentionOutputs attention = self_attn_(hidden_states, conv_mask, attention_mask);  // the weights stay in `_`
    hidden_states = std::move(attention.output);
    hidden_states = attn_sconv_(hidden_states, conv_mask);
    hidden_states = add(hidden_in, hidden_states);
    const Tensor residual = hidden_states;
    hidden_states = post_attention_layernorm_(hidden_states);
    hidden_states = mlp_(hidden_states);
    hidden_states = mlp_sconv_(hidden_states, conv_mask);
    return add(residual, hidden_states);
  }

 private:
  InklingAttention self_attn_;
  std::function<Tensor(const Tensor&)> mlp_;
  Norm input_layernorm_, post_attention_layernorm_;
  ShortConvolution attn_sconv_, mlp_sconv_;
  ModuleId module_;
};

class InklingForCausalLM : public LanguageModel {
 public:
  InklingForCausalLM(Context& context, const InklingConfig& c, const DataConfig& data, const ModelOptions& options)
      : LanguageModel(context, kInkling.causal_lm, Modality::language, data, options),
        unpadded_vocab_size_(c.unpadded_vocab_size) {
    const Builder model = root_.child("model", kInkling.model);
    DecoderParts parts;
    parts.rotary_dim = -2;  // no angles, and layers get no positions
    parts.is_recurrent = [](std::size_t) { return false; };
    parts.layer = [c, options, model, this](const Builder& layer, std::size_t index) {
      if (index == 0) embed_norm_ = norm_of(model.child("embed_tokens.embed_norm", kInkling.rms_norm), c.hidden_size);
      return std::make_unique<InklingDecoderLayer>(layer, c, options, index);
    };
    parts.kind = [c](std::size_t i) { return 2 * int{c.experts.are_in(i)} + int{c.window_of(i) != 0}; };
    make_decoder(model, c, options, std::move(parts));
    make_head(root_, c, false);
    is_causal_lm = true;
  }

  ModelOutputs forward(const ModelInputs& inputs) override {
    Tensor last_hidden_state;
    {
      ModuleCall call(context_, language_model_.module);
      const MaskArguments given{inputs.position_ids, inputs.attention_mask, inputs.rows, inputs.cu_seq_lens_q};
      Tensor inputs_embeds = inputs.inputs_embeds ? inputs.inputs_embeds : embed(inputs.input_ids);
      last_hidden_state = call.result(language_model_.run(inputs_embeds, given));
    }
    const Tensor hidden_states = div_scalar(last_hidden_state);
    const std::int64_t kept = unpadded_vocab_size_;
    return causal_lm_outputs(hidden_states, lm_head_, inputs, loss_function,
                             [kept](Tensor logits) { return kept != 0 ? slice(logits, -1, 0, kept) : logits; });
  }

  /// InklingNormedEmbedding.forward
  Tensor embed(const Tensor& input_ids) const override {
    const Embedding& embed_tokens = language_model_.embed_tokens;
    return embed_tokens(input_ids, [&](Tensor& embeddings) {
      embeddings = embed_norm_(embeddings);
      require_input_grad(language_model_.checkpointing, embeddings, embed_tokens.module);
    });
  }

  bool activate_neftune() override { return false; }

 private:
  std::int64_t unpadded_vocab_size_;
  Norm embed_norm_;
};

}  // namespace

std::unique_ptr<Model> build_inkling(Context& context, const InklingConfig& config, const DataConfig& data,
                                     const ModelOptions& options) {
  return std::make_unique<InklingForCausalLM>(context, config, data, options);
}

}  // namespace oometer
