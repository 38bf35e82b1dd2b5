#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "config/reader.h"
#include "models/kit/mixture.h"
#include "models/kit/recurrent.h"
#include "ops/experts.h"
#include "ops/ops.h"
#include "ops/vision.h"

/// transformers 5.23, models/laguna/modeling_laguna.py.
namespace oometer {

namespace {

constexpr LlamaClassNames kNames{"LagunaForCausalLM", "LagunaModel",   "LagunaDecoderLayer",   "LagunaAttention",
                                 "LagunaMLP",         "LagunaRMSNorm", "LagunaRotaryEmbedding"};
constexpr ModelClass kClasses[] = {{"laguna", kNames.causal_lm}};
constexpr const char* kBlocks[] = {kNames.decoder_layer};

struct LagunaConfig : TextConfig {
  std::vector<std::int64_t> heads{};  ///< num_attention_heads_per_layer
  bool gates_elements = false;        ///< gating "per-element"
  bool softcaps_router = false;       ///< moe_router_logit_softcapping
  bool full_is_yarn = false;          ///< rope_type of layers with full attention

  bool operator==(const LagunaConfig&) const = default;
};

/// rope_parameters, by the layers' type: which share of a head is rotated.
std::int64_t read_rotated(ConfigReader& reader, const TextConfig& c, const char* type, double usual) {
  double factor = usual;
  if (reader.is_object("rope_parameters")) {
    ConfigReader all = reader.object("rope_parameters");
    factor = all.is_object(type) ? all.object(type).number("partial_rotary_factor", 1.0, 0, 1) : usual;
  }
  return static_cast<std::int64_t>(static_cast<double>(c.head_dim) * factor);
}

LagunaConfig read(ConfigReader& reader) {
  TextConfig d;
  d.names = &kNames;
  d.vocab_size = 100'352;
  d.hidden_size = 2048;
  d.intermediate_size = 8192;
  d.num_hidden_layers = 40;
  d.num_attention_heads = 48;
  d.num_key_value_heads = 8;
  d.max_position_embeddings = 131'072;
  LagunaConfig c{read_text_sizes(reader, d, 128)};
  c.qkv_bias = c.output_bias = reader.boolean("attention_bias", false);
  check_llama_heads(reader, c);
  read_mixed_layers(reader, c, 1, 512);
  const auto sliding = std::count_if(c.layer_windows.begin(), c.layer_windows.end(), [](auto w) { return w != 0; });
  if (sliding == 0) c.sliding_window = 0;                       // masks and angles are made of the types that there are
  if (sliding == c.num_hidden_layers) c.layer_windows.clear();  // all of one window
  const std::int64_t full = read_rotated(reader, c, "full_attention", 0.5),
                     windowed = read_rotated(reader, c, "sliding_attention", 1.0);
  c.rotary_dim = sliding == c.num_hidden_layers ? windowed : full;
  if (c.rotary_dim % 2 != 0 || c.rotary_dim == 0)
    reader.fail("rope_parameters", "inconsistent",
                "of each head " + std::to_string(c.rotary_dim) + " elements are rotated; expected an even number");
  if (c.has_both_types() && windowed != c.head_dim)
    reader.fail("rope_parameters", "not-modelled",
                "layers that slide and rotate a part of a head are not supported yet: expected 1.0");
  c.full_is_yarn = reader.object("rope_parameters").object("full_attention").text("rope_type", "default") == "yarn";
  c.heads = reader.integers("num_attention_heads_per_layer");
  if (c.heads.empty()) c.heads.assign(static_cast<std::size_t>(c.num_hidden_layers), c.num_attention_heads);
  const auto wrong = [&c](std::int64_t heads) { return heads % c.num_key_value_heads != 0; };
  if (static_cast<std::int64_t>(c.heads.size()) != c.num_hidden_layers ||
      std::any_of(c.heads.begin(), c.heads.end(), wrong)) {
    reader.fail(
        "num_attention_heads_per_layer", "inconsistent",
        "expected a multiple of num_key_value_heads (" + std::to_string(c.num_key_value_heads) + ") for each layer");
    c.heads.resize(static_cast<std::size_t>(c.num_hidden_layers), c.num_attention_heads);
  }
  read_experts(reader, c, "num_experts", "num_local_experts",
               {.num_experts = 256, .num_experts_per_tok = 8, .balances = true});
  c.experts.intermediate_size = reader.integer("moe_intermediate_size", 512);
  c.experts.shared_intermediate_size = reader.integer("shared_expert_intermediate_size", 512);
  for (std::int64_t i = 0; i < c.num_hidden_layers; ++i) c.experts.layers.push_back(i != 0);
  read_mlp_layer_types(reader, c);
  reader.refuse("moe_apply_router_weight_on_input", "the class refuses it: set it to false");
  c.softcaps_router = reader.number("moe_router_logit_softcapping", 0, 0, 1e9) > 0;
  if (const nlohmann::json* gating = reader.find("gating"))  // true is "per-head"
    c.gates_elements = *gating != true && *gating != "per-head";
  reader.ignore({"moe_routed_scaling_factor", "partial_rotary_factor", "use_bidirectional_attention"});
  return c;
}

/// LagunaAttention: as many heads as the layer has, and a gate of what they give.
struct LagunaAttention {
  LagunaAttention(const Builder& builder, const LagunaConfig& c, const ModelOptions& options, std::int64_t heads)
      : head_dim(c.head_dim),
        gates_elements(c.gates_elements),
        call(attention_call(c, options)),
        layer_idx(layer_index(builder)),
        module(builder.module) {
    const std::int64_t width = heads * head_dim, kv_width = c.num_key_value_heads * head_dim;
    q_proj = Linear(builder.child("q_proj", "Linear"), c.hidden_size, width, c.qkv_bias);
    k_proj = Linear(builder.child("k_proj", "Linear"), c.hidden_size, kv_width, c.qkv_bias);
    v_proj = Linear(builder.child("v_proj", "Linear"), c.hidden_size, kv_width, c.qkv_bias);
    o_proj = Linear(builder.child("o_proj", "Linear"), width, c.hidden_size, c.output_bias);
    q_norm = Norm(builder.child("q_norm", kNames.rms_norm), rms_norm, {head_dim});
    k_norm = Norm(builder.child("k_norm", kNames.rms_norm), rms_norm, {head_dim});
    g_proj = Linear(builder.child("g_proj", "Linear"), c.hidden_size, gates_elements ? width : heads, false);
  }

  AttentionOutputs operator()(const Tensor& hidden_states, const PositionEmbeddings& positions,
                              const Tensor& attention_mask) const {
    ModuleCall self(hidden_states.context(), module);
    const auto heads = [&](const Linear& projection) {
      const Tensor x = projection(hidden_states);
      return view(x, {x.size(0), x.size(1), x.size(2) / head_dim, head_dim});
    };
    AttentionInputs states;
    states.query = heads(q_proj);
    states.key = heads(k_proj);
    states.value = heads(v_proj);
    states.query = transpose(q_norm(states.query), 1, 2);
    states.key = transpose(k_norm(states.key), 1, 2);
    states.value = transpose(states.value, 1, 2);
    std::tie(states.query, states.key) = rotate_first_halves(states.query, states.key, positions);
    AttentionOutputs attention = attend(call, layer_idx, states, positions, attention_mask);
    Tensor& output = attention.output;
    Tensor gate = g_proj(hidden_states);
    gate = to(gate, DType::float32);
    gate = activation_of_input(Op::softplus, Op::softplus_backward, gate, false);
    gate = to(gate, output.dtype());
    if (gates_elements) {
      output = mul(output, gate);
    } else {
      const Shape joined = output.sizes();
      const Tensor apart = view(output, {joined[0], joined[1], joined[2] / head_dim, head_dim});
      output = view(mul(apart, unsqueeze(gate, -1)), joined);
    }
    output = self.result(o_proj(output));
    return attention;
  }

  Linear q_proj, k_proj, v_proj, o_proj, g_proj;
  Norm q_norm, k_norm;
  std::int64_t head_dim;
  bool gates_elements;
  AttentionCall call;
  std::size_t layer_idx;
  ModuleId module;
};

/// LagunaTopKRouter.forward.
template <bool softcaps>
Routing best_sigmoids_in_float32(const Router& router, const Tensor& hidden_in) {
  ModuleCall call(hidden_in.context(), router.module);
  const Tensor hidden_states = call.argument(hidden_in);
  Routing routing;
  {
    const Tensor logits = linear(hidden_states, router.weight, {});
    routing.router_logits = to(logits, DType::float32);
  }
  if (softcaps) {
    Tensor capped = div_scalar(routing.router_logits);
    capped = tanh(capped);
    routing.router_logits = mul_scalar(capped);
  }
  const Tensor routing_scores = sigmoid(routing.router_logits);
  Tensor scores_for_selection;
  {
    const Tensor bias = to(router.e_score_correction_bias, DType::float32);
    scores_for_selection = add(routing_scores, bias);
  }
  TopK chosen = topk(scores_for_selection, router.top_k);  // the values stay in `_`
  routing.topk_weights = gather(routing_scores, chosen.indices);
  {
    const Tensor total = sum(routing.topk_weights, {-1}, true);
    routing.topk_weights = div(routing.topk_weights, total);
  }
  routing.topk_weights = to(routing.topk_weights, hidden_states.dtype());
  routing.topk_indices = std::move(chosen.indices);
  routing.router_logits = call.result(std::move(routing.router_logits));
  routing.topk_weights = call.result(std::move(routing.topk_weights));
  return routing;
}

struct LagunaSparseMoeBlock {
  LagunaSparseMoeBlock(const Builder& at, const LagunaConfig& c)
      : experts(make_experts(at, "LagunaExperts", c)), module(at.module) {
    const Builder gate_at = at.child("gate", "LagunaTopKRouter");
    gate = Router(gate_at, c, c.softcaps_router ? best_sigmoids_in_float32<true> : best_sigmoids_in_float32<false>);
    gate.e_score_correction_bias = gate_at.parameter("e_score_correction_bias", {c.experts.num_experts});
    gate.e_score_correction_bias->leaf_requires_grad = false;
    shared_experts = make_shared(at.child("shared_experts", kNames.mlp), c);
  }

  Tensor operator()(const Tensor& argument) const {
    ModuleCall call(argument.context(), module);
    const Tensor hidden_in = call.argument(argument);
    const std::int64_t hidden = hidden_in.size(-1);
    Tensor hidden_states = view(hidden_in, {hidden_in.numel() / hidden, hidden});
    const Tensor shared_output = shared_experts(hidden_states);
    const Routing routing = gate(hidden_states);  // the logits stay in `_`
    hidden_states = experts(hidden_states, routing.topk_indices, routing.topk_weights);
    hidden_states = mul_scalar(hidden_states);
    hidden_states = add(hidden_states, shared_output);
    return call.result(view(hidden_states, hidden_in.sizes()));
  }

  Experts experts;
  Router gate;
  LlamaMLP shared_experts;
  ModuleId module;
};

std::unique_ptr<DecoderLayer> make_layer(const Builder& builder, const LagunaConfig& c, const ModelOptions& options,
                                         std::size_t index) {
  auto layer = std::make_unique<TextLayer>(builder, pre_norm);
  layer->self_attn = LagunaAttention(builder.child("self_attn", kNames.attention), c, options, c.heads[index]);
  if (c.experts.are_in(index))
    layer->mlp = LagunaSparseMoeBlock(builder.child("mlp", "LagunaSparseMoeBlock"), c);
  else
    layer->mlp = LlamaMLP(builder.child("mlp", kNames.mlp), c);
  layer->input_norm = Norm(builder.child("input_layernorm", kNames.rms_norm), rms_norm, {c.hidden_size});
  layer->feedforward_norm = Norm(builder.child("post_attention_layernorm", kNames.rms_norm), rms_norm, {c.hidden_size});
  return layer;
}

DecoderParts parts(const LagunaConfig& config, const ModelOptions& options) {
  DecoderParts parts;
  parts.layer = [config, options](const Builder& layer, std::size_t index) {
    return make_layer(layer, config, options, index);
  };
  parts.rotary_by_type = parts.masks_by_type = config.has_both_types();
  parts.float32_frequencies = config.full_is_yarn;
  parts.kind = [config](std::size_t i) {
    return static_cast<int>(4 * config.heads[i]) + 2 * config.experts.are_in(i) + (config.window_of(i) != 0);
  };
  return parts;
}

ModelTraits traits(const FamilyConfig& config) {
  ModelTraits t = text_traits(config.as<LagunaConfig>());
  t.has_no_peft_targets();
  allow_compared(t, {Feature::quantization, Feature::zero3, Feature::fsdp});
  return t;
}

}  // namespace

namespace family {
extern const Family laguna =
    text_family_of<LagunaConfig, read, balanced<parts, LagunaConfig>>(kClasses, kBlocks, traits);
}  // namespace family

}  // namespace oometer
