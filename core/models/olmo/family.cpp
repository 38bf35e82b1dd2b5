#include <tuple>

#include "config/reader.h"
#include "models/kit/recurrent.h"
#include "models/llama/llama.h"
#include "ops/masks.h"

/// transformers 5.23, models/olmo/modeling_olmo.py.
namespace oometer {

namespace {

constexpr LlamaClassNames kNames{"OlmoForCausalLM", "OlmoModel",     "OlmoDecoderLayer",   "OlmoAttention",
                                 "OlmoMLP",         "OlmoLayerNorm", "OlmoRotaryEmbedding"};
constexpr ModelClass kClasses[] = {{"olmo", kNames.causal_lm}, {"olmo", "OlmoForSequenceClassification"}};
constexpr const char* kBlocks[] = {kNames.decoder_layer};

struct OlmoConfig : TextConfig {
  bool clips = false;  ///< clip_qkv
  bool has_bos_token = false;

  bool operator==(const OlmoConfig&) const = default;
};

OlmoConfig read(ConfigReader& reader) {
  TextConfig d;
  d.names = &kNames;
  d.vocab_size = 50304;
  d.num_key_value_heads = 0;
  d.has_pad_token = true;
  OlmoConfig c;
  static_cast<TextConfig&>(c) = read_text_sizes(reader, d);
  c.qkv_bias = c.output_bias = reader.boolean("attention_bias", false);
  c.clips = reader.has("clip_qkv");
  c.has_bos_token = reader.has("bos_token_id");
  reader.ignore({"clip_qkv"});
  check_llama_heads(reader, c);
  return c;
}

/// OlmoLayerNorm.forward: nothing of it trains.
Tensor layer_norm_float32(const Norm& norm, const Tensor& argument) {
  ModuleCall call(argument.context(), norm.module);
  const Tensor hidden_states = call.argument(argument);
  Tensor normed;
  {
    const Tensor as_float = to(hidden_states, DType::float32);
    normed = layer_norm(as_float, {}, {});
  }
  return call.result(to(normed, hidden_states.dtype()));
}

struct OlmoAttention {
  OlmoAttention(const Builder& builder, const OlmoConfig& c, const ModelOptions& options)
      : clips(c.clips),
        head_dim(c.head_dim),
        call(attention_call(c, options)),
        layer_idx(layer_index(builder)),
        module(builder.module) {
    const std::int64_t queries = c.num_attention_heads * head_dim, keys = c.num_key_value_heads * head_dim;
    q_proj = Linear(builder.child("q_proj", "Linear"), c.hidden_size, queries, c.qkv_bias);
    k_proj = Linear(builder.child("k_proj", "Linear"), c.hidden_size, keys, c.qkv_bias);
    v_proj = Linear(builder.child("v_proj", "Linear"), c.hidden_size, keys, c.qkv_bias);
    o_proj = Linear(builder.child("o_proj", "Linear"), queries, c.hidden_size, c.output_bias);
  }

  AttentionOutputs operator()(const Tensor& argument, const PositionEmbeddings& positions, const Tensor& mask) const {
    ModuleCall self(argument.context(), module);
    const Tensor hidden_states = self.argument(argument);
    AttentionInputs states;
    states.query = q_proj(hidden_states);
    states.key = k_proj(hidden_states);
    states.value = v_proj(hidden_states);
    for (Tensor* projected : {&states.query, &states.key, &states.value})
      if (clips) *projected = clamp_in_place(*projected);
    for (Tensor* heads : {&states.query, &states.key, &states.value}) *heads = heads_of(*heads, head_dim);
    std::tie(states.query, states.key) = rotate_float32(states.query, states.key, positions);
    AttentionOutputs attention = attend(call, layer_idx, states, positions, mask);
    attention.output = self.result(o_proj(attention.output));
    for (Tensor* name : {&states.query, &states.key, &states.value}) name->reset();  // as a frame lets its names go
    return attention;
  }

  Linear q_proj, k_proj, v_proj, o_proj;
  bool clips;
  std::int64_t head_dim;
  AttentionCall call;
  std::size_t layer_idx;
  ModuleId module;
};

std::unique_ptr<DecoderLayer> make_layer(const Builder& builder, const OlmoConfig& c, const ModelOptions& options) {
  auto layer = std::make_unique<TextLayer>(builder, pre_norm);
  const auto norm = [&](const char* name) { return Norm(builder.child(name, kNames.rms_norm), layer_norm_float32); };
  layer->self_attn = OlmoAttention(builder.child("self_attn", kNames.attention), c, options);
  layer->mlp = LlamaMLP(builder.child("mlp", kNames.mlp), c, options.liger);
  layer->input_norm = norm("input_layernorm");
  layer->feedforward_norm = norm("post_attention_layernorm");
  return layer;
}

DecoderParts parts(const OlmoConfig& config, const ModelOptions& options) {
  DecoderParts parts;
  parts.layer = [config, options](const Builder& layer, std::size_t) { return make_layer(layer, config, options); };
  parts.rotary = embed_positions_float32;
  parts.norm = [](const Builder& builder, std::int64_t) {
    return [norm = Norm(builder, layer_norm_float32)](const Tensor& x) { return norm(x); };
  };
  return parts;
}

ModelTraits traits(const FamilyConfig& config) {
  ModelTraits t = traits_with<Feature::quantization, Feature::zero3, Feature::fsdp>(config);
  if (!config.as<OlmoConfig>().has_bos_token)  // the class's own is none, and generate then has a tensor less
    t.refuse(Feature::inference, "not-modelled", "generation without bos_token_id is not supported yet: set it");
  return t;
}

}  // namespace

namespace family {
extern const Family olmo = text_family_of<OlmoConfig, read, parts>(kClasses, kBlocks, traits);
}  // namespace family

}  // namespace oometer
