#include "models/hy_v4/hy_v4.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "models/deepseek/deepseek.h"
#include "models/deepseek_v4/deepseek_v4.h"
#include "models/gpt_oss/gpt_oss.h"
#include "models/kit/decoder.h"
#include "models/kit/kept_in_float32.h"
#include "models/llama/llama.h"
#include "ops/experts.h"
#include "ops/masks.h"
#include "ops/ops.h"
#include "ops/vision.h"

/// Names and order of steps are the modeling file's.
namespace oometer {

namespace {

/// HYV4Indexer: no gradient comes to it.
struct HyIndexer {
  HyIndexer(const Builder& builder, const HyV4Config& c)
      : wq_b(builder.child("wq_b", "Linear"), c.q_lora_rank, c.index_n_heads * c.index_head_dim, false),
        wk(builder.child("wk", "Linear"), c.hidden_size, c.index_head_dim, false),
        k_norm(kept_in_float32(builder.child("k_norm", "LayerNorm")), torch_layer_norm, {c.index_head_dim}, true),
        weights_proj(kept_in_float32(builder.child("weights_proj", "Linear")), c.hidden_size, c.index_n_heads, false),
        heads(c.index_n_heads),
        head_dim(c.index_head_dim),
        turned(c.qk_rope_head_dim),
        index_topk(c.index_topk),
        module(builder.module) {}

  /// [b, s, index_topk], int32. `attention_mask`: [b, s, s].
  Tensor operator()(const Tensor& hidden_states, const Tensor& q_resid, const PositionEmbeddings& positions,
                    const Tensor& attention_mask) const {
    Context& context = hidden_states.context();
    ModuleCall call(context, module);
    const NoGrad no_grad(context);
    const std::int64_t batch = hidden_states.size(0), length = hidden_states.size(1);
    const auto cut = [&](const Tensor& x, Tensor& pass, Tensor& rot) {
      const TensorList both = split(x, {head_dim - turned, turned}, -1);
      pass = both[0];
      rot = both[1];
    };
    Tensor q = view(wq_b(q_resid), {batch, length, heads, head_dim}), q_pass, q_rot, k_pass, k_rot;
    cut(q, q_pass, q_rot);
    Tensor k;
    {
      Tensor projected = wk(hidden_states);
      projected = to(projected, k_norm.weight.dtype());
      projected = k_norm(projected);
      projected = to(projected, hidden_states.dtype());
      k = unsqueeze(projected, 2);
    }
    cut(k, k_pass, k_rot);
    {
      const Tensor cos = unsqueeze(positions.cos, 2), sin = unsqueeze(positions.sin, 2);
      Tensor q_turned = rotate(q_rot, cos, sin), k_turned = rotate(k_rot, cos, sin);
      q_rot = std::move(q_turned);
      k_rot = std::move(k_turned);
    }
    q = cat({q_pass, q_rot}, -1);
    k = view(cat({k_pass, k_rot}, -1), {batch, length, head_dim});
    Tensor scores;
    {
      const Tensor queries = to(q, DType::float32), keys = to(transpose(k, 1, 2), DType::float32);
      const Tensor lowered = autocast_lower(unsqueeze(keys, 1));
      scores = matmul(queries, expand(lowered, {batch, length, head_dim, length}));
    }
    scores = relu(scores);
    Tensor weights;
    {
      const Tensor cast = to(hidden_states, weights_proj.weight.dtype());
      weights = weights_proj(cast);
    }
    weights = to(weights, DType::float32);
    weights = mul_scalar(weights);
    weights = mul_scalar(weights);
    Tensor index_scores = view(matmul(unsqueeze(weights, 2), scores), {batch, length, length});
    index_scores = add(index_scores, attention_mask);
    TopK best = topk(index_scores, std::min(index_topk, length));
    best.values.reset();
    return call.result(to(best.indices, DType::int32));
  }

  Linear wq_b, wk;
  Norm k_norm;
  Linear weights_proj;
  std::int64_t heads, head_dim, turned, index_topk;
  ModuleId module;
};

/// HYV4Attention: DeepSeek-V3's latents, a gate of what the heads give, and sinks.
struct HyAttention {
  HyAttention(const Builder& builder, const HyV4Config& c, const DeepseekConfig& latents, const ModelOptions& options,
              bool takes_others)
      : mla(builder, latents, options), v_head_dim(c.v_head_dim), module(builder.module) {
    if (!takes_others) indexer.emplace(builder.child("indexer", kHyV4.indexer), c);
    gate_proj = Linear(builder.child("gate_proj", "Linear"), c.hidden_size, c.num_attention_heads * v_head_dim, false);
    sinks = kept_in_float32(builder).parameter("sinks", {c.num_attention_heads});
  }

  AttentionOutputs operator()(const Tensor& hidden_states, const PositionEmbeddings& positions,
                              const Tensor& mask_in) const {
    Context& context = hidden_states.context();
    ModuleCall self(context, module);
    const DeepseekConfig& c = *mla.config;
    const std::int64_t batch = hidden_states.size(0), length = hidden_states.size(1);
    Tensor gate_states;
    {
      const Tensor gate = gate_proj(hidden_states);
      gate_states = view(gate, {batch, length, c.num_attention_heads, v_head_dim});
    }
    Tensor q_resid;
    const Tensor q_states = mla.project_queries(hidden_states, &q_resid);
    const TensorList queries = split(q_states, {c.qk_nope_head_dim, c.qk_rope_head_dim}, -1);
    const Tensor compressed_kv = mla.kv_a_proj_with_mqa(hidden_states);
    const TensorList latents = split(compressed_kv, {c.kv_lora_rank, c.qk_rope_head_dim}, -1);
    const Tensor k_pass = view(mla.kv_a_layernorm(latents[0]), {batch, 1, length, c.kv_lora_rank});
    const Tensor k_in = view(latents[1], {batch, 1, length, c.qk_rope_head_dim});
    const DeepseekAttention::Rotated rotated = mla.turn(queries[1], k_in, positions);
    AttentionInputs states;
    states.query = cat({queries[0], rotated.q}, -1);
    {
      AttentionInputs expanded = mla.expand_kv(k_pass, rotated.k);
      states.key = std::move(expanded.key);
      states.value = std::move(expanded.value);
    }
    Tensor topk_indices;
    if (indexer)
      topk_indices = (*indexer)(hidden_states, q_resid, positions, select(mask_in, 1, 0));
    else
      topk_indices = positions.prev_topk_indices;
    if (positions.topk_indices && !context.recomputing) *positions.topk_indices = topk_indices;
    Tensor index_mask;
    {
      const Shape sizes{batch, length, length};
      const Tensor ones = empty(context, Op::ones_like, sizes, DType::boolean);
      const Tensor indices = to(topk_indices, DType::int64);
      index_mask = unsqueeze(empty(context, Op::clone, sizes, DType::boolean), 1);  // scatter: a copy
    }
    const Tensor attention_mask = masked_fill(mask_in, index_mask);
    AttentionOutputs attention = attend_with_sinks(mla.call, states, attention_mask, sinks);
    {
      const Tensor share = sigmoid(gate_states);
      attention.output = mul(attention.output, share);
    }
    attention.output = reshape(attention.output, {batch, length, c.num_attention_heads * v_head_dim});
    attention.output = self.result(mla.o_proj(attention.output));
    return attention;
  }

  DeepseekAttention mla;
  std::optional<HyIndexer> indexer;
  Linear gate_proj;
  Tensor sinks;
  std::int64_t v_head_dim;
  ModuleId module;
};

/// HYV4UnweightedRMSNorm: the inverse alone.
struct InverseNorm {
  explicit InverseNorm(const Builder& parent) : module(parent.child("input_norm", "HYV4UnweightedRMSNorm").module) {}

  Tensor operator()(const Tensor& argument) const {
    ModuleCall call(argument.context(), module);
    const Tensor x = call.argument(argument);
    Tensor inverse = pow(x, 2);
    inverse = mean(inverse, -1, true);
    inverse = add_scalar(inverse);
    return call.result(rsqrt(inverse));
  }

  ModuleId module;
};

/// `streams.flatten(2).float()`
Tensor flat_of(const Tensor& streams) {
  return to(view(streams, {streams.size(0), streams.size(1), streams.size(2) * streams.size(3)}), DType::float32);
}

/// `F.linear(flat, fn.float()) * input_norm(flat)`
Tensor mixes_of(const Tensor& flat, const Tensor& fn, const InverseNorm& input_norm) {
  const Tensor mixed = linear(flat, fn, {}), inverse = input_norm(flat);
  return mul(mixed, inverse);
}

/// `sigmoid(logits * scale + base)`
Tensor gates(const Tensor& logits, const Tensor& scale, const Tensor& base) {
  Tensor gate = mul(logits, scale);
  gate = add(gate, base);
  return sigmoid(gate);
}

struct HyperConnection {
  HyperConnection(const Builder& builder, const HyV4Config& c)
      : input_norm(builder), hc_mult(c.hc_mult), module(builder.module) {
    const Builder own = kept_in_float32(builder);
    fn = own.parameter("fn", {2 * hc_mult, hc_mult * c.hidden_size});
    base = own.parameter("base", {2 * hc_mult});
    scale = own.parameter("scale", {2});
  }

  /// What the layer's part gets; and `post`, how what it gives comes back.
  Tensor operator()(const Tensor& argument, Tensor& post_out) const {
    Context& context = argument.context();
    ModuleCall call(context, module);
    const Tensor hidden_streams = call.argument(argument);
    Tensor out, post;
    {
      const Scoped<bool> autocast(context.autocast.enabled, false);
      const Tensor flat = flat_of(hidden_streams), mixes = mixes_of(flat, fn, input_norm);
      const TensorList bases = split(base, {hc_mult, hc_mult}, -1), scales = unbind(scale),
                       logits = split(mixes, {hc_mult, hc_mult}, -1);
      Tensor pre = gates(logits[0], scales[0], bases[0]);
      pre = add_scalar(pre);
      post = gates(logits[1], scales[1], bases[1]);
      post = mul_scalar(post);
      post = add_scalar(post);
      {
        const Tensor weighted = mul(unsqueeze(pre, -1), hidden_streams);
        out = sum(weighted, {2}, false);
      }
      out = to(out, hidden_streams.dtype());
    }
    post_out = call.result(post);
    return call.result(out);
  }

  InverseNorm input_norm;
  Tensor fn, base, scale;
  std::int64_t hc_mult;
  ModuleId module;
};

/// HYV4Model's streams, and HYV4HyperHead.
class HyStreams : public Streams {
 public:
  HyStreams(const Builder& head, const HyV4Config& c) : input_norm_(head), hc_mult_(c.hc_mult), module_(head.module) {
    const Builder own = kept_in_float32(head);
    hc_fn_ = own.parameter("hc_fn", {hc_mult_, hc_mult_ * c.hidden_size});
    hc_base_ = own.parameter("hc_base", {hc_mult_});
    hc_scale_ = own.parameter("hc_scale", {1});
  }

  Tensor open(const Tensor& inputs_embeds, TensorList& /*names*/) const override {
    const std::int64_t batch = inputs_embeds.size(0), length = inputs_embeds.size(1), hidden = inputs_embeds.size(2);
    return contiguous(expand(unsqueeze(inputs_embeds, 2), {batch, length, hc_mult_, hidden}));
  }

  Tensor close(Tensor& hidden_states, TensorList& /*names*/) const override {
    Context& context = hidden_states.context();
    ModuleCall call(context, module_);
    const Tensor x = call.argument(hidden_states);
    const Scoped<bool> autocast(context.autocast.enabled, false);
    const Tensor flat = flat_of(x), mixes = mixes_of(flat, hc_fn_, input_norm_);
    Tensor pre = gates(mixes, hc_scale_, hc_base_);
    pre = add_scalar(pre);
    Tensor out;
    {
      const Tensor weighted = mul(unsqueeze(pre, -1), x);
      out = sum(weighted, {2}, false);
    }
    return call.result(to(out, x.dtype()));
  }

 private:
  InverseNorm input_norm_;
  Tensor hc_fn_, hc_base_, hc_scale_;
  std::int64_t hc_mult_;
  ModuleId module_;
};

class HyDecoderLayer : public DecoderLayer {
 public:
  HyDecoderLayer(const Builder& builder, const HyV4Config& c, const DeepseekConfig& latents,
                 const ModelOptions& options, std::size_t index)
      : self_attn_(builder.child("self_attn", kHyV4.attention), c, latents, options, c.shares_topk[index]),
        module_(builder.module) {
    const Builder at =
        builder.child("mlp", index < static_cast<std::size_t>(c.first_k_dense_replace) ? kHyV4.mlp : kHyV4.moe);
    if (index < static_cast<std::size_t>(c.first_k_dense_replace)) {
      mlp_ = LlamaMLP(at, c.as_llama(c.intermediate_size));
    } else {
      MoeWithShared moe = make_deepseek_moe(at, c, {});
      moe.experts.parts.apply_gate = limited_gate;
      mlp_ = std::move(moe);
    }
    input_layernorm_ = Norm(builder.child("input_layernorm", kHyV4.rms_norm), rms_norm, {c.hidden_size});
    post_attention_layernorm_ =
        Norm(builder.child("post_attention_layernorm", kHyV4.rms_norm), rms_norm, {c.hidden_size});
    attn_hc_.emplace(builder.child("attn_hc", "HYV4HyperConnection"), c);
    ffn_hc_.emplace(builder.child("ffn_hc", "HYV4HyperConnection"), c);
  }

  Tensor operator()(const Tensor& hidden_in, const PositionEmbeddings& positions,
                    const Tensor& attention_mask) const override {
    const ModuleScope scope(hidden_in.context(), module_);
    Tensor post, hidden_states = (*attn_hc_)(hidden_in, post);
    hidden_states = input_layernorm_(hidden_states);
    AttentionOutputs attention = self_attn_(hidden_states, positions, attention_mask);  // the weights stay in `_`
    hidden_states = std::move(attention.output);
    hidden_states = into_streams(post, hidden_states, hidden_in);
    const Tensor residual = hidden_states;
    {
      Tensor ffn_post;
      hidden_states = (*ffn_hc_)(hidden_states, ffn_post);
      post = std::move(ffn_post);
    }
    hidden_states = post_attention_layernorm_(hidden_states);
    hidden_states = mlp_(hidden_states);
    return into_streams(post, hidden_states, residual);
  }

 private:
  /// `(post.float().unsqueeze(-1) * output.float().unsqueeze(-2) + residual.float()).to(dtype)`
  static Tensor into_streams(const Tensor& post, const Tensor& output, const Tensor& residual) {
    Tensor sum;
    {
      Tensor expanded;
      {
        const Tensor as_float = to(output, DType::float32);
        expanded = mul(unsqueeze(post, -1), unsqueeze(as_float, -2));
      }
      const Tensor as_float = to(residual, DType::float32);
      sum = add(expanded, as_float);
    }
    return to(sum, residual.dtype());
  }

  HyAttention self_attn_;
  std::function<Tensor(const Tensor&)> mlp_;
  Norm input_layernorm_, post_attention_layernorm_;
  std::optional<HyperConnection> attn_hc_, ffn_hc_;
  ModuleId module_;
};

/// HYV4ForCausalLM: its head is float32, whatever the model is.
class HyV4ForCausalLM : public LanguageModel {
 public:
  HyV4ForCausalLM(Context& context, const LlamaConfig& config, const DataConfig& data, const ModelOptions& options,
                  DecoderParts parts)
      : LanguageModel(context, config.names->causal_lm, Modality::language, data, options) {
    make_decoder(root_.child("model", config.names->model), config, options, std::move(parts));
    lm_head_ = Linear(kept_in_float32(root_.child("lm_head", "Linear", Modality::language)), config.hidden_size,
                      config.vocab_size, false);
    is_causal_lm = true;
  }

  ModelOutputs forward(const ModelInputs& inputs) override {
    const Tensor hidden_states = run_text_model(inputs);
    Tensor logits;
    {
      const Tensor cast = to(hidden_states, lm_head_.weight.dtype());
      logits = lm_head_(cast);
    }
    ModelOutputs outputs;
    if (inputs.labels) outputs.loss = (*loss_function)(logits, inputs.labels);
    outputs.others.push_back(std::move(logits));
    return outputs;
  }

  Tensor embed(const Tensor& input_ids) const override { return language_model_.embed(input_ids); }
};

}  // namespace

std::unique_ptr<Model> build_hy_v4(Context& context, const HyV4Config& config_in, const DataConfig& data,
                                   const ModelOptions& options) {
  /// What DeepSeek's attention makes of it, without an indexer of its own.
  static constexpr DeepseekClassNames kLatents{kHyV4, "", "", "", {.is_v3 = true}};
  struct Configs {
    HyV4Config own;
    DeepseekConfig latents;
  };
  const auto configs = std::make_shared<Configs>(Configs{config_in, config_in});
  configs->latents.names = &kLatents;
  configs->latents.rope_interleave = false;
  DecoderParts parts;
  parts.layer = [configs, options](const Builder& layer, std::size_t index) {
    return std::make_unique<HyDecoderLayer>(layer, configs->own, configs->latents, options, index);
  };
  parts.kind = [](std::size_t i) { return static_cast<int>(i); };
  parts.always_masks = parts.shares_topk = true;
  parts.streams = [configs](const Builder& decoder) -> std::unique_ptr<Streams> {
    return std::make_unique<HyStreams>(decoder.child("hc_head", "HYV4HyperHead"), configs->own);
  };
  // What a region gives beside its states lives through its backward there.
  if (options.checkpointing.mode == CheckpointMode::reentrant)
    context.refusal = Error{"not-modelled", "/training/activation_checkpointing",
                            "found \"reentrant\", which is not supported yet where layers share the tokens that they "
                            "choose; expected \"non-reentrant\""};
  return std::make_unique<HyV4ForCausalLM>(context, configs->own.as_llama(configs->own.intermediate_size), data,
                                           options, std::move(parts));
}

}  // namespace oometer
