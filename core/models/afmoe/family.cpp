#include <tuple>
#include <utility>

#include "config/reader.h"
#include "models/kit/mixture.h"
#include "models/kit/recurrent.h"
#include "ops/experts.h"
#include "ops/ops.h"

/// transformers 5.23, models/afmoe/modeling_afmoe.py.
namespace oometer {

namespace {

constexpr LlamaClassNames kNames{"AfmoeForCausalLM", "AfmoeModel",   "AfmoeDecoderLayer",   "AfmoeAttention",
                                 "AfmoeMLP",         "AfmoeRMSNorm", "AfmoeRotaryEmbedding"};
constexpr ModelClass kClasses[] = {{"afmoe", kNames.causal_lm}};
constexpr const char* kBlocks[] = {kNames.decoder_layer};

struct AfmoeConfig : TextConfig {
  bool mup_enabled = false;

  bool operator==(const AfmoeConfig&) const = default;
};

AfmoeConfig read(ConfigReader& reader) {
  TextConfig d;
  d.names = &kNames;
  d.vocab_size = 200192;
  d.hidden_size = 2048;
  d.intermediate_size = 6144;
  d.num_attention_heads = 16;
  d.num_key_value_heads = 0;
  d.max_position_embeddings = 16384;
  AfmoeConfig c{read_text_sizes(reader, d, 128)};
  c.qkv_bias = c.output_bias = reader.boolean("attention_bias", false);
  c.mup_enabled = reader.boolean("mup_enabled", false);
  check_llama_heads(reader, c);
  read_mixed_layers(reader, c, reader.integer("global_attn_every_n_layers", 4), 1024);
  for (const std::int64_t window : c.layer_windows) c.rotates.push_back(window != 0);
  read_experts(reader, c, "num_experts", "num_local_experts", {.num_experts = 64, .num_experts_per_tok = 6});
  c.experts.intermediate_size = reader.integer("moe_intermediate_size", 1408);
  c.experts.shared_intermediate_size = c.experts.intermediate_size * reader.integer("num_shared_experts", 2);
  const std::int64_t dense = reader.integer("num_dense_layers", 1, non_negative);
  for (std::int64_t i = 0; i < c.num_hidden_layers; ++i) c.experts.layers.push_back(i >= dense);
  reader.ignore({"route_scale", "route_norm", "score_func", "n_group", "topk_group", "num_expert_groups",
                 "num_limited_groups", "load_balance_coeff", "use_grouped_mm"});
  return c;
}

/// AfmoeAttention: a gate of what it gives, projected apart.
struct AfmoeAttention {
  AfmoeAttention(const Builder& builder, const AfmoeConfig& c, const ModelOptions& options, bool is_local)
      : head_dim(c.head_dim),
        is_local_attention(is_local),
        call(attention_call(c, options)),
        layer_idx(layer_index(builder)),
        module(builder.module) {
    const std::int64_t width = c.num_attention_heads * head_dim, kv_width = c.num_key_value_heads * head_dim;
    q_proj = Linear(builder.child("q_proj", "Linear"), c.hidden_size, width, c.qkv_bias);
    k_proj = Linear(builder.child("k_proj", "Linear"), c.hidden_size, kv_width, c.qkv_bias);
    v_proj = Linear(builder.child("v_proj", "Linear"), c.hidden_size, kv_width, c.qkv_bias);
    o_proj = Linear(builder.child("o_proj", "Linear"), width, c.hidden_size, c.output_bias);
    q_norm = Norm(builder.child("q_norm", kNames.rms_norm), rms_norm_float32, {head_dim});
    k_norm = Norm(builder.child("k_norm", kNames.rms_norm), rms_norm_float32, {head_dim});
    gate_proj = Linear(builder.child("gate_proj", "Linear"), c.hidden_size, width, false);
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
    const Tensor gate_states = gate_proj(hidden_states);
    states.query = transpose(q_norm(states.query), 1, 2);
    states.key = transpose(k_norm(states.key), 1, 2);
    states.value = transpose(states.value, 1, 2);
    if (is_local_attention) std::tie(states.query, states.key) = rotate_halves(states.query, states.key, positions);
    AttentionOutputs attention = attend(call, layer_idx, states, positions, attention_mask);
    Tensor& output = attention.output;
    {
      const Tensor share = sigmoid(gate_states);
      output = mul(output, share);
    }
    const Tensor gated = output;  // `output` stays bound
    attention.output = self.result(o_proj(gated));
    return attention;
  }

  Linear q_proj, k_proj, v_proj, o_proj, gate_proj;
  Norm q_norm, k_norm;
  std::int64_t head_dim;
  bool is_local_attention;
  AttentionCall call;
  std::size_t layer_idx;
  ModuleId module;
};

/// AfmoeTokenChoiceRouter.
struct AfmoeTokenChoiceRouter {
  AfmoeTokenChoiceRouter(const Builder& builder, const AfmoeConfig& c)
      : gate(builder.child("gate", "Linear"), c.hidden_size, c.experts.num_experts, false),
        top_k(c.experts.num_experts_per_tok),
        module(builder.module) {}

  Routing operator()(const Tensor& argument, const Tensor& expert_bias) const {
    ModuleCall call(argument.context(), module);
    const Tensor hidden_in = call.argument(argument);
    const Tensor hidden_states = view(hidden_in, {hidden_in.size(0) * hidden_in.size(1), hidden_in.size(2)});
    Routing routing;
    {
      const Tensor logits = gate(hidden_states);
      routing.router_logits = to(logits, DType::float32);
    }
    const Tensor scores = sigmoid(routing.router_logits);
    TopK chosen;  // the values stay in `_`
    {
      const Tensor biased = add(scores, expert_bias);
      chosen = topk(biased, top_k);
    }
    Tensor top_scores = gather(scores, chosen.indices), denominator;
    {
      const Tensor total = sum(top_scores, {-1}, true);
      denominator = add_scalar(total);
    }
    top_scores = div(top_scores, denominator);
    top_scores = mul_scalar(top_scores);
    routing.router_logits = call.result(std::move(routing.router_logits));
    routing.topk_weights = call.result(std::move(top_scores));
    routing.topk_indices = std::move(chosen.indices);
    return routing;
  }

  Linear gate;
  std::int64_t top_k;
  ModuleId module;
};

struct AfmoeSparseMoeBlock {
  AfmoeSparseMoeBlock(const Builder& at, const AfmoeConfig& c)
      : router(at.child("router", "AfmoeTokenChoiceRouter"), c),
        shared_experts(make_shared(at.child("shared_experts", kNames.mlp), c)),
        experts(make_experts(at, "AfmoeExperts", c)),
        expert_bias(at.parameter("expert_bias", {c.experts.num_experts})),
        module(at.module) {
    expert_bias->leaf_requires_grad = false;
  }

  Tensor operator()(const Tensor& argument) const {
    ModuleCall call(argument.context(), module);
    const Tensor hidden_states = call.argument(argument);
    const Shape sizes = hidden_states.sizes();
    const Tensor hidden_states_flat = view(hidden_states, {sizes[0] * sizes[1], sizes[2]});
    const Routing routing = router(hidden_states, expert_bias);  // the logits stay in `_`
    const Tensor shared_output = view(shared_experts(hidden_states_flat), sizes);
    const Tensor routed_output = view(experts(hidden_states_flat, routing.topk_indices, routing.topk_weights), sizes);
    return call.result(add(shared_output, routed_output));
  }

  AfmoeTokenChoiceRouter router;
  LlamaMLP shared_experts;
  Experts experts;
  Tensor expert_bias;
  ModuleId module;
};

std::unique_ptr<DecoderLayer> make_layer(const Builder& builder, const AfmoeConfig& c, const ModelOptions& options,
                                         std::size_t index) {
  auto layer = std::make_unique<TextLayer>(builder, sandwich_norm);
  const auto norm = [&](const char* name) {
    return Norm(builder.child(name, kNames.rms_norm), rms_norm_float32, {c.hidden_size});
  };
  layer->self_attn = AfmoeAttention(builder.child("self_attn", kNames.attention), c, options, c.rotates_in(index));
  layer->input_norm = norm("input_layernorm");
  layer->attention_norm = norm("post_attention_layernorm");
  layer->feedforward_norm = norm("pre_mlp_layernorm");
  layer->output_norm = norm("post_mlp_layernorm");
  if (c.experts.are_in(index))
    layer->mlp = AfmoeSparseMoeBlock(builder.child("mlp", "AfmoeSparseMoeBlock"), c);
  else
    layer->mlp = LlamaMLP(builder.child("mlp", kNames.mlp), c);
  return layer;
}

DecoderParts parts(const AfmoeConfig& config, const ModelOptions& options) {
  DecoderParts parts;
  parts.layer = [config, options](const Builder& layer, std::size_t index) {
    return make_layer(layer, config, options, index);
  };
  parts.norm = final_norm(rms_norm_float32);
  if (config.mup_enabled) parts.first_states = mul_scalar;
  parts.masks_know_positions = false;
  parts.makes_both_masks = true;
  return parts;
}

ModelTraits traits(const FamilyConfig& config) {
  ModelTraits t = text_traits(config.as<AfmoeConfig>());
  t.has_no_peft_targets();
  allow_compared(t, {Feature::quantization, Feature::zero3, Feature::fsdp});
  return t;
}

void convert_targets(ConfigReader& reader, const FamilyConfig& config, LoraConfig& lora) {
  convert_expert_targets(reader, lora, projection_paths(config.as<AfmoeConfig>(), kExpertProjections),
                         kExpertProjections);
}

}  // namespace

namespace family {
extern const Family afmoe = [] {
  Family its = text_family_of<AfmoeConfig, read, parts>(kClasses, kBlocks, traits);
  its.convert_targets = convert_targets;
  return its;
}();
}  // namespace family

}  // namespace oometer
