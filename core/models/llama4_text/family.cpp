#include <algorithm>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "config/reader.h"
#include "models/bert/bert.h"
#include "models/kit/mixture.h"
#include "models/llama4_text/llama4_text.h"
#include "nn/activation.h"
#include "nn/kv_cache.h"
#include "ops/experts.h"
#include "ops/ops.h"
#include "ops/vision.h"

/// transformers 5.23, models/llama4/modeling_llama4.py: its language model by itself.
namespace oometer {

namespace {

constexpr const LlamaClassNames& kNames = kLlama4TextNames;
constexpr ModelClass kClasses[] = {{"llama4_text", kNames.causal_lm}};
constexpr const char* kBlocks[] = {kNames.decoder_layer};

/// Flags by layer, of which each `interval`-th is 0 where the config does not say.
std::vector<bool> read_no_rope_layers(ConfigReader& reader, std::int64_t layers) {
  const std::int64_t interval = reader.integer("no_rope_layer_interval", 4);
  const std::vector<std::int64_t> given = reader.integers("no_rope_layers", {0, 1});
  if (!given.empty() && given.size() != static_cast<std::size_t>(layers))
    reader.fail("no_rope_layers", "inconsistent",
                "found " + std::to_string(given.size()) + " flags for " + std::to_string(layers) +
                    " layers; expected num_hidden_layers of them");
  std::vector<bool> rotates;
  for (std::int64_t i = 0; i < layers; ++i) {
    const std::size_t at = static_cast<std::size_t>(i);
    rotates.push_back(at < given.size() ? given[at] != 0 : (i + 1) % interval != 0);
  }
  return rotates;
}

void read_layer_types(ConfigReader& reader, TextConfig& c) {
  const std::vector<std::string> types = reader.texts_of_layers("layer_types", c.num_hidden_layers);
  const std::size_t layers = static_cast<std::size_t>(c.num_hidden_layers);
  for (std::size_t i = 0; i < layers; ++i) {
    const bool chunks = i < types.size() ? types[i] == "chunked_attention" : c.rotates[i];
    c.layer_windows.push_back(chunks ? c.sliding_window : 0);
    if (i < types.size() && !chunks && types[i] != "full_attention")
      reader.fail("layer_types", "unknown-value",
                  "found \"" + types[i] + "\"; expected \"full_attention\" or \"chunked_attention\"");
  }
}

}  // namespace

Llama4Config read_llama4_text_config(ConfigReader& reader) {
  Llama4Config d;
  d.names = &kNames;
  d.vocab_size = 202'048;
  d.hidden_size = 5120;
  d.intermediate_size = 8192;
  d.num_hidden_layers = 48;
  d.num_attention_heads = 40;
  d.num_key_value_heads = 8;
  d.max_position_embeddings = 131'072;
  Llama4Config c;
  static_cast<TextConfig&>(c) = read_text_sizes(reader, d, 128);
  c.qkv_bias = c.output_bias = reader.boolean("attention_bias", false);
  c.intermediate_size_mlp = reader.integer("intermediate_size_mlp", 16384);
  c.norms_queries = reader.boolean("use_qk_norm", true);
  c.scales_queries = reader.boolean("attn_temperature_tuning", true);
  check_llama_heads(reader, c);
  c.rotates = read_no_rope_layers(reader, c.num_hidden_layers);
  c.sliding_window = reader.integer("attention_chunk_size", 8192);
  read_layer_types(reader, c);
  read_experts(reader, c, "num_local_experts", "num_experts", {.num_experts = 16, .num_experts_per_tok = 1});
  c.experts.intermediate_size = c.experts.shared_intermediate_size = c.intermediate_size;
  const std::int64_t step = reader.integer("interleave_moe_layer_step", 1);
  const std::vector<std::int64_t> given = reader.integers("moe_layers", non_negative);
  const bool says = reader.is_list("moe_layers");
  for (std::int64_t i = 0; i < c.num_hidden_layers; ++i)
    c.experts.layers.push_back(says ? std::find(given.begin(), given.end(), i) != given.end() : (i + 1) % step == 0);
  reader.ignore({"floor_scale", "attn_scale", "router_jitter_noise", "for_llm_compressor"});
  return c;
}

namespace {

/// Llama4TextRotaryEmbedding.forward: torch.polar of the angles, scaled, as pairs of float32.
PositionEmbeddings embed_positions_polar(const LlamaRotaryEmbedding& rotary_emb, const Tensor& position_ids, DType) {
  Context& context = position_ids.context();
  ModuleCall call(context, rotary_emb.module);
  const NoGrad no_grad(context);
  const Tensor freqs = rotary_angles(position_ids, rotary_emb.inv_freq);
  Tensor freqs_cis;
  {
    const Tensor ones = empty_like(Op::ones_like, freqs);
    Shape pairs = freqs.sizes();
    pairs.push_back(2);
    freqs_cis = empty(context, Op::polar, pairs, DType::float32);
  }
  freqs_cis = mul_scalar(freqs_cis);
  return {call.result(freqs_cis), {}};
}

}  // namespace

std::pair<Tensor, Tensor> rotate_polar(const Tensor& xq, const Tensor& xk, const Tensor& turns) {
  const auto as_complex = [](const Tensor& x) {
    Shape sizes = x.sizes();
    sizes[-1] /= 2;
    sizes.push_back(2);
    return reshape(to(x, DType::float32), sizes);
  };
  const Tensor xq_ = as_complex(xq), xk_ = as_complex(xk);
  const Tensor q = mul_complex(xq_, turns), xq_out = view(q, xq.sizes());
  const Tensor k = mul_complex(xk_, turns), xk_out = view(k, xk.sizes());
  Tensor query = to(xq_out, xq.dtype()), key = to(xk_out, xk.dtype());
  return {std::move(query), std::move(key)};
}

namespace {

/// Llama4TextRMSNorm.forward.
Tensor rms_norm_behind_cast(const Norm& norm, const Tensor& argument) {
  ModuleCall call(argument.context(), norm.module);
  const Tensor x = call.argument(argument);
  Tensor output;
  {
    const Tensor as_float = to(x, DType::float32);
    Tensor scale = pow(as_float, 2);
    scale = mean(scale, -1, true);
    scale = add_scalar(scale);
    scale = rsqrt(scale);
    output = mul(as_float, scale);
  }
  output = to(output, x.dtype());
  return call.result(mul(output, norm.weight));
}

struct Llama4TextAttention {
  Llama4TextAttention(const Builder& builder, const Llama4Config& c, const ModelOptions& options, std::size_t index)
      : head_dim(c.head_dim),
        rotates(c.rotates_in(index)),
        scales(c.scales_queries && !rotates),
        call(attention_call(c, options)),
        layer_idx(index),
        module(builder.module) {
    const std::int64_t width = c.num_attention_heads * head_dim, kv_width = c.num_key_value_heads * head_dim;
    q_proj = Linear(builder.child("q_proj", "Linear"), c.hidden_size, width, c.qkv_bias);
    k_proj = Linear(builder.child("k_proj", "Linear"), c.hidden_size, kv_width, c.qkv_bias);
    v_proj = Linear(builder.child("v_proj", "Linear"), c.hidden_size, kv_width, c.qkv_bias);
    o_proj = Linear(builder.child("o_proj", "Linear"), width, c.hidden_size, c.output_bias);
    if (c.norms_queries && rotates) qk_norm = Norm(builder.child("qk_norm", "Llama4TextL2Norm"), l2_norm);
  }

  AttentionOutputs operator()(const Tensor& hidden_states, const PositionEmbeddings& positions,
                              const Tensor& attention_mask) const {
    Context& context = hidden_states.context();
    ModuleCall self(context, module);
    const std::int64_t batch = hidden_states.size(0), length = hidden_states.size(1);
    const auto heads = [&](const Linear& projection) {
      const Tensor x = projection(hidden_states);
      return view(x, {batch, length, x.size(-1) / head_dim, head_dim});
    };
    AttentionInputs states;
    states.query = heads(q_proj);
    states.key = heads(k_proj);
    states.value = transpose(heads(v_proj), 1, 2);
    if (rotates) {
      auto [query, key] = rotate_polar(states.query, states.key, unsqueeze(positions.cos, 2));
      states.query = std::move(query);
      states.key = std::move(key);
    }
    if (qk_norm)
      for (Tensor* x : {&states.query, &states.key}) *x = qk_norm(*x);
    Tensor position, attn_scales;  // names of forward
    if (scales) {
      position = empty(context, Op::arange, {length}, DType::int64);
      position = empty(context, Op::add, {length}, DType::int64);
      attn_scales = to(position, DType::float32);
      for (const Op op : {Op::add, Op::div, Op::floor, Op::log, Op::mul, Op::add})
        attn_scales = pointwise(op, {&attn_scales}, DType::float32);
      attn_scales = expand(view(attn_scales, {1, length, 1, 1}), {batch, length, 1, 1});
      const Tensor scaled = mul(states.query, attn_scales);
      states.query = to(scaled, states.query.dtype());
    }
    for (Tensor* x : {&states.query, &states.key}) *x = transpose(*x, 1, 2);
    AttentionOutputs attention = attend(call, layer_idx, states, positions, attention_mask, eager_in_own_type);
    attention.output = self.result(o_proj(attention.output));
    return attention;
  }

  Linear q_proj, k_proj, v_proj, o_proj;
  std::int64_t head_dim;
  bool rotates, scales;
  AttentionCall call;
  std::size_t layer_idx;
  Norm qk_norm;
  ModuleId module;
};

/// Llama4TextMoe: every expert sees every token, most of them times zero.
struct Llama4TextMoe {
  Llama4TextMoe(const Builder& builder, const Llama4Config& c)
      : top_k(c.experts.num_experts_per_tok), act_fn(c.hidden_act), module(builder.module) {
    const Builder its_experts = builder.child("experts", "Llama4TextExperts");
    experts = its_experts.module;
    gate_up_proj =
        its_experts.parameter("gate_up_proj", {c.experts.num_experts, c.hidden_size, 2 * c.intermediate_size});
    down_proj = its_experts.parameter("down_proj", {c.experts.num_experts, c.intermediate_size, c.hidden_size});
    const Builder its_router = builder.child("router", "Llama4Router");
    router_module = its_router.module;
    router = its_router.parameter("weight", {c.experts.num_experts, c.hidden_size});
    shared_expert = LlamaMLP(builder.child("shared_expert", kNames.mlp), c);
  }

  /// The scores, and the logits.
  std::pair<Tensor, Tensor> route(const Tensor& hidden_states) const {
    ModuleCall call(hidden_states.context(), router_module);
    Tensor router_logits = linear(call.argument(hidden_states), router, {});
    const TopK top = topk(router_logits, top_k);
    Tensor router_scores;
    {
      const Tensor none = empty_like(Op::full_like, router_logits);
      router_scores = scatter_into(none, top.indices, top.values);
    }
    {
      Tensor scores = to(router_scores, DType::float32);
      scores = sigmoid(scores);
      router_scores = to(scores, router_scores.dtype());
    }
    Tensor result = call.result(router_scores);
    router_logits = call.result(std::move(router_logits));
    return {std::move(result), std::move(router_logits)};
  }

  Tensor run_experts(const Tensor& argument) const {
    ModuleCall call(argument.context(), experts);
    const auto lower_bmm = [](const Tensor& input, const Tensor& mat2) {
      const Tensor second = autocast_lower(mat2), first = autocast_lower(input);
      return bmm(first, second);
    };
    const Tensor routed_in = call.argument(argument);
    const std::int64_t count = gate_up_proj.size(0), hidden = routed_in.size(1), half = down_proj.size(1);
    const Tensor hidden_states = view(routed_in, {count, routed_in.size(0) / count, hidden});
    const Tensor gate_up = lower_bmm(hidden_states, gate_up_proj);
    const TensorList chunks = split(gate_up, {half, half}, -1);
    Tensor product;
    {
      const Tensor activated = activate(act_fn, chunks[0]);
      product = mul(chunks[1], activated);
    }
    Tensor next_states = lower_bmm(product, down_proj);
    product.reset();
    return call.result(view(next_states, {routed_in.size(0), hidden}));
  }

  Tensor operator()(const Tensor& argument, Tensor& router_logits) const {
    ModuleCall call(argument.context(), module);
    const Tensor hidden_in = call.argument(argument);
    const std::int64_t hidden = hidden_in.size(-1), tokens = hidden_in.numel() / hidden, count = router.size(0);
    const Tensor hidden_states = view(hidden_in, {tokens, hidden});
    Tensor router_scores;
    std::tie(router_scores, router_logits) = route(hidden_states);
    Tensor routed_in = repeat(hidden_states, {count, 1});
    {
      const Tensor of_rows = reshape(transpose(router_scores, 0, 1), {tokens * count, 1});
      routed_in = mul(routed_in, of_rows);
    }
    const Tensor routed_out = run_experts(routed_in);
    Tensor out = shared_expert(hidden_states);
    {
      const Tensor total = sum(view(routed_out, {count, tokens, hidden}), {0}, false);
      out = add_in_place(out, total);
    }
    router_logits = call.result(std::move(router_logits));
    return call.result(out);
  }

  Tensor gate_up_proj, down_proj, router;
  LlamaMLP shared_expert;
  std::int64_t top_k;
  Activation act_fn;
  ModuleId experts = 0, router_module = 0, module;
};

class Llama4TextDecoderLayer : public DecoderLayer {
 public:
  Llama4TextDecoderLayer(const Builder& builder, const Llama4Config& c, const ModelOptions& options, std::size_t index)
      : self_attn_(builder.child("self_attn", kNames.attention), c, options, index), module_(builder.module) {
    LlamaConfig dense = c;
    dense.intermediate_size = c.intermediate_size_mlp;
    if (c.experts.are_in(index))
      moe_.emplace(builder.child("feed_forward", "Llama4TextMoe"), c);
    else
      mlp_ = LlamaMLP(builder.child("feed_forward", kNames.mlp), dense);
    const auto norm = [&](const char* name) {
      return Norm(builder.child(name, kNames.rms_norm), rms_norm_behind_cast, {c.hidden_size});
    };
    input_layernorm_ = norm("input_layernorm");
    post_attention_layernorm_ = norm("post_attention_layernorm");
  }

  Tensor operator()(const Tensor& hidden_in, const PositionEmbeddings& positions,
                    const Tensor& attention_mask) const override {
    const ModuleScope scope(hidden_in.context(), module_);
    Tensor residual = hidden_in;
    Tensor hidden_states = input_layernorm_(hidden_in);
    AttentionOutputs attention = self_attn_(hidden_states, positions, attention_mask);  // attention_states, _
    hidden_states = add(residual, attention.output);
    residual = hidden_states;
    hidden_states = post_attention_layernorm_(hidden_states);
    if (moe_) {
      Tensor router_logits;
      hidden_states = (*moe_)(hidden_states, router_logits);
      attention.weights = std::move(router_logits);  // `_` again
    } else {
      hidden_states = mlp_(hidden_states);
    }
    return add(residual, view(hidden_states, residual.sizes()));
  }

 private:
  Llama4TextAttention self_attn_;
  std::optional<Llama4TextMoe> moe_;
  LlamaMLP mlp_;
  Norm input_layernorm_, post_attention_layernorm_;
  ModuleId module_;
};

FamilyConfig read_family(ConfigReader& reader, const ModelClass&, Framework) { return read_llama4_text_config(reader); }

std::unique_ptr<Model> build(Context& context, const FamilyConfig& config, const DataConfig& data,
                             const ModelOptions& options) {
  const auto& c = config.as<Llama4Config>();
  return build_text_family(context, c, data, options, llama4_text_parts(c, options));
}

}  // namespace

DecoderParts llama4_text_parts(const Llama4Config& c, const ModelOptions& options) {
  DecoderParts parts;
  parts.layer = [c, options](const Builder& layer, std::size_t index) -> std::unique_ptr<DecoderLayer> {
    return std::make_unique<Llama4TextDecoderLayer>(layer, c, options, index);
  };
  parts.rotary = embed_positions_polar;
  parts.norm = final_norm(rms_norm_behind_cast);
  parts.masks_chunks = true;
  parts.kind = [c](std::size_t i) {
    return (c.rotates_in(i) ? 1 : 0) + (c.experts.are_in(i) ? 2 : 0) + (c.layer_windows[i] != 0 ? 4 : 0);
  };
  return parts;
}

void allow_llama4_text(ModelTraits& t) {
  for (const Feature feature : {Feature::generate_options, Feature::packing})
    t.refuse(feature, "not-modelled", "this is not supported yet with " + t.class_name);
  t.refuse(Feature::flash_attention_2, "inconsistent", "transformers has no flash attention for Llama 4: use sdpa");
  t.allow({Feature::fsdp});
  t.leave_liger_out();
}

double largest_tensor_of_llama4_text(const Llama4Config& c, const DataConfig& data) {
  const double tokens = static_cast<double>(data.micro_batch_size) * static_cast<double>(data.sequence_length);
  const double routed = 4.0 * tokens * static_cast<double>(c.experts.num_experts) *
                        static_cast<double>(std::max(c.hidden_size, 2 * c.intermediate_size));
  return std::max(routed, largest_tensor_of_text_family(TextConfig(c), data));
}

void refuse_llama4_router(ConfigReader& reader, const FamilyConfig&, LoraConfig& lora) {
  if (lora.target_modules.all_linear)
    reader.fail_found("target_modules", "inconsistent",
                      "it reaches Llama 4's router, at which peft fails; expected names of layers (q_proj, k_proj, "
                      "v_proj, o_proj)");
}

namespace {

ModelTraits traits(const FamilyConfig& config) {
  ModelTraits t = text_traits(config.as<Llama4Config>());
  allow_llama4_text(t);
  return t;
}

double largest(const FamilyConfig& config, const DataConfig& data) {
  return largest_tensor_of_llama4_text(config.as<Llama4Config>(), data);
}

}  // namespace

namespace family {
extern const Family llama4_text{.classes = kClasses,
                                .blocks = kBlocks,
                                .read = read_family,
                                .build = build,
                                .traits = traits,
                                .largest_tensor = largest,
                                .convert_targets = refuse_llama4_router};
}  // namespace family

}  // namespace oometer
