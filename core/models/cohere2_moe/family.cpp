#include <utility>

#include "config/reader.h"
#include "models/kit/mixture.h"
#include "models/kit/recurrent.h"
#include "ops/experts.h"
#include "ops/ops.h"

/// transformers 5.23, models/cohere2_moe/modeling_cohere2_moe.py.
namespace oometer {

namespace {

constexpr LlamaClassNames kNames{"Cohere2MoeForCausalLM",    "Cohere2MoeModel", "Cohere2MoeDecoderLayer",
                                 "Cohere2MoeAttention",      "Cohere2MoeMLP",   "Cohere2MoeLayerNorm",
                                 "Cohere2MoeRotaryEmbedding"},
    kNamesWithRMSNorm{kNames.causal_lm, kNames.model,        kNames.decoder_layer,   kNames.attention,
                      kNames.mlp,       "Cohere2MoeRMSNorm", kNames.rotary_embedding};
constexpr ModelClass kClasses[] = {{"cohere2_moe", kNames.causal_lm}};
constexpr const char* kBlocks[] = {kNames.decoder_layer};

struct Cohere2MoeConfig : TextConfig {
  std::int64_t prefix_dense_intermediate_size = 0;
  bool averages = false;        ///< shared_expert_combination_strategy
  bool takes_sigmoids = false;  ///< expert_selection_fn

  Norm::Forward norm() const { return names == &kNames ? cohere_layer_norm : rms_norm; }
  bool operator==(const Cohere2MoeConfig&) const = default;
};

/// layer_types, mlp_layer_types: the first layers, which are dense, slide by a pattern of their own.
void read_layers(ConfigReader& reader, Cohere2MoeConfig& c) {
  const std::int64_t dense = reader.integer("first_k_dense_replace", 0, non_negative),
                     prefix = reader.integer("prefix_dense_sliding_window_pattern", 1),
                     pattern = reader.integer("sliding_window_pattern", 4);
  read_mixed_layers(reader, c, pattern);
  const bool are_given = reader.has("layer_types");
  for (std::int64_t i = 0; i < c.num_hidden_layers; ++i) {
    const bool sees_all = (i < dense ? (i + 1) % prefix : (i - dense + 1) % pattern) == 0;
    if (!are_given) c.layer_windows[static_cast<std::size_t>(i)] = sees_all ? 0 : c.sliding_window;
    c.experts.layers.push_back(i >= dense);
  }
  read_mlp_layer_types(reader, c);
  for (std::size_t i = 0; i < c.layer_windows.size(); ++i)  // of the others those that are forced to (force_rope)
    c.rotates.push_back(c.layer_windows[i] != 0 || (prefix == 1 && !c.experts.are_in(i)));
}

Cohere2MoeConfig read(ConfigReader& reader) {
  TextConfig d;
  d.names = reader.has("rms_norm_eps") ? &kNamesWithRMSNorm : &kNames;
  d.vocab_size = 256'000;
  d.hidden_size = 8192;
  d.intermediate_size = 22'528;
  d.num_hidden_layers = 40;
  d.num_attention_heads = 64;
  d.num_key_value_heads = 0;
  d.max_position_embeddings = 8192;
  d.tie_word_embeddings = d.has_pad_token = true;
  Cohere2MoeConfig c{read_text_sizes(reader, d, 128)};
  c.qkv_bias = c.output_bias = reader.boolean("attention_bias", false);
  check_llama_heads(reader, c);
  read_experts(reader, c, "num_experts", "num_local_experts",
               {.num_experts = 8,
                .num_experts_per_tok = 2,
                .intermediate_size = c.intermediate_size,
                .norm_topk_prob = reader.boolean("norm_topk_prob", true)});
  c.experts.shared_intermediate_size =
      checked_product(c.intermediate_size, reader.integer("num_shared_experts", 0, non_negative));
  read_layers(reader, c);
  c.prefix_dense_intermediate_size =
      reader.optional_integer("prefix_dense_intermediate_size").value_or(c.intermediate_size);
  c.averages = reader.choice("shared_expert_combination_strategy", true, {{"average", true}, {"sum", false}});
  c.takes_sigmoids = reader.choice("expert_selection_fn", false, {{"softmax", false}, {"sigmoid", true}});
  reader.ignore({"logit_scale"});
  return c;
}

/// Cohere2MoeTopKRouter.forward.
template <bool takes_sigmoids>
Routing scores_of_best(const Router& router, const Tensor& hidden_in) {
  ModuleCall call(hidden_in.context(), router.module);
  const Tensor hidden_states = call.argument(hidden_in);
  Routing routing;
  routing.router_logits = linear(hidden_states, router.weight, {});
  TopK best = topk(routing.router_logits, router.top_k);
  routing.topk_weights = std::move(best.values);
  routing.topk_indices = std::move(best.indices);
  if (takes_sigmoids) {
    routing.topk_weights = sigmoid(routing.topk_weights);
    if (router.norm_topk_prob) {
      const Tensor total = sum(routing.topk_weights, {-1}, true);
      routing.topk_weights = div(routing.topk_weights, total);
    }
  } else {
    routing.topk_weights = softmax(routing.topk_weights, DType::float32);
  }
  routing.topk_weights = to(routing.topk_weights, hidden_states.dtype());
  routing.router_logits = call.result(std::move(routing.router_logits));
  routing.topk_weights = call.result(std::move(routing.topk_weights));
  return routing;
}

struct Cohere2MoeSparseMoeBlock {
  Cohere2MoeSparseMoeBlock(const Builder& at, const Cohere2MoeConfig& c)
      : gate(at.child("gate", "Cohere2MoeTopKRouter"), c,
             c.takes_sigmoids ? scores_of_best<true> : scores_of_best<false>),
        experts(make_experts(at, "Cohere2MoeExperts", c)),
        averages(c.averages),
        module(at.module) {
    if (c.experts.shared_intermediate_size != 0)
      shared_experts = make_shared(at.child("shared_experts", c.names->mlp), c);
  }

  Tensor operator()(const Tensor& argument) const {
    ModuleCall call(argument.context(), module);
    const Tensor hidden_states = call.argument(argument);
    const std::int64_t hidden = hidden_states.size(-1);
    const Tensor hidden_states_flat = view(hidden_states, {hidden_states.numel() / hidden, hidden});
    const Routing routing = gate(hidden_states_flat);  // the logits stay in `_`
    Tensor final_hidden_states = experts(hidden_states_flat, routing.topk_indices, routing.topk_weights);
    if (shared_experts) {
      const Tensor shared_expert_output = (*shared_experts)(hidden_states_flat);
      Tensor sum = add(final_hidden_states, shared_expert_output);
      final_hidden_states = averages ? div_scalar(sum) : std::move(sum);
    }
    return call.result(view(final_hidden_states, hidden_states.sizes()));
  }

  Router gate;
  Experts experts;
  std::optional<LlamaMLP> shared_experts;
  bool averages;
  ModuleId module;
};

std::unique_ptr<DecoderLayer> make_layer(const Builder& builder, const Cohere2MoeConfig& c, const ModelOptions& options,
                                         std::size_t index) {
  auto layer = std::make_unique<TextLayer>(builder, parallel);
  AttentionParts its;
  its.rotate = c.rotates_in(index) ? rotate_pairs_float32 : nullptr;
  layer->self_attn = TextAttention(builder.child("self_attn", kNames.attention), c, options, its);
  if (c.experts.are_in(index)) {
    layer->mlp = Cohere2MoeSparseMoeBlock(builder.child("mlp", "Cohere2MoeSparseMoeBlock"), c);
  } else {
    LlamaConfig dense = c;
    dense.intermediate_size = c.prefix_dense_intermediate_size;
    layer->mlp = LlamaMLP(builder.child("mlp", kNames.mlp), dense);
  }
  layer->input_norm = Norm(builder.child("input_layernorm", c.names->rms_norm), c.norm(), {c.hidden_size});
  return layer;
}

DecoderParts parts(const Cohere2MoeConfig& config, const ModelOptions& options) {
  DecoderParts parts;
  parts.layer = [config, options](const Builder& layer, std::size_t index) {
    return make_layer(layer, config, options, index);
  };
  parts.norm = final_norm(config.norm());
  parts.logits = [](const Tensor& logits) { return mul_scalar(logits); };
  parts.fused_states = mul_scalar;
  return parts;
}

ModelTraits traits(const FamilyConfig& config) {
  ModelTraits t = text_traits(config.as<Cohere2MoeConfig>());
  t.has_no_peft_targets();
  allow_compared(t, {Feature::quantization, Feature::zero3, Feature::fsdp});
  return t;
}

constexpr Family with_converted_targets() {
  Family family = text_family_of<Cohere2MoeConfig, read, parts>(kClasses, kBlocks, traits);
  family.convert_targets = [](ConfigReader& reader, const FamilyConfig& config, LoraConfig& lora) {
    convert_expert_targets(reader, lora, projection_paths(config.as<Cohere2MoeConfig>(), kExpertProjections),
                           kExpertProjections);
  };
  return family;
}

}  // namespace

namespace family {
extern const Family cohere2_moe = with_converted_targets();
}  // namespace family

}  // namespace oometer
