#include <tuple>
#include <utility>

#include "config/reader.h"
#include "models/kit/text_family.h"
#include "ops/ops.h"

/// transformers 5.23, models/persimmon/modeling_persimmon.py.
namespace oometer {

namespace {

constexpr LlamaClassNames kNames{"PersimmonForCausalLM",    "PersimmonModel", "PersimmonDecoderLayer",
                                 "PersimmonAttention",      "PersimmonMLP",   "LayerNorm",
                                 "PersimmonRotaryEmbedding"};
constexpr ModelClass kClasses[] = {{"persimmon", kNames.causal_lm},
                                   {"persimmon", "PersimmonForSequenceClassification"},
                                   {"persimmon", "PersimmonForTokenClassification"}};
constexpr const char* kBlocks[] = {kNames.decoder_layer};

TextConfig read(ConfigReader& reader) {
  TextConfig d;
  d.names = &kNames;
  d.vocab_size = 262144;
  d.intermediate_size = 16384;
  d.num_hidden_layers = 36;
  d.num_attention_heads = 64;
  d.num_key_value_heads = 0;
  d.max_position_embeddings = 16384;
  d.hidden_act = Activation::relu2;
  TextConfig c = read_text_sizes(reader, d);
  c.num_key_value_heads = c.num_attention_heads;
  share_hidden_size(reader, c);
  c.norms_queries = reader.boolean("qk_layernorm", true);
  c.layer_dropout = reader.number("hidden_dropout", 0, 0, 1);
  c.classifier.dropout = 0;
  read_partial_rotary(reader, c, 0.5);
  reader.ignore({"layer_norm_eps"});
  check_llama_heads(reader, c);
  return c;
}

struct PersimmonAttention {
  PersimmonAttention(const Builder& builder, const TextConfig& c, const ModelOptions& options)
      : query_key_value(builder.child("query_key_value", "Linear"), c.hidden_size, 3 * c.hidden_size, true),
        dense(builder.child("dense", "Linear"), c.hidden_size, c.hidden_size, true),
        num_heads(c.num_attention_heads),
        head_dim(c.head_dim),
        rotary_ndims(c.rotary_dim),
        call(attention_call(c, options)),
        layer_idx(layer_index(builder)),
        module(builder.module) {
    if (!c.norms_queries) return;
    q_layernorm = Norm(builder.child("q_layernorm", "LayerNorm"), torch_layer_norm, {head_dim}, true);
    k_layernorm = Norm(builder.child("k_layernorm", "LayerNorm"), torch_layer_norm, {head_dim}, true);
  }

  AttentionOutputs operator()(const Tensor& hidden_states, const PositionEmbeddings& positions,
                              const Tensor& attention_mask) const {
    ModuleCall self(hidden_states.context(), module);
    const Tensor fused_qkv = query_key_value(hidden_states);
    AttentionInputs states;
    {  // _split_heads
      const Tensor of_heads = view(fused_qkv, {fused_qkv.size(0), fused_qkv.size(1), num_heads, 3, head_dim});
      states.query = select(of_heads, 3, 0);
      states.key = select(of_heads, 3, 1);
      states.value = select(of_heads, 3, 2);
    }
    if (q_layernorm) {
      states.query = q_layernorm(states.query);
      states.key = k_layernorm(states.key);
    }
    for (Tensor* heads : {&states.query, &states.value, &states.key}) *heads = transpose(*heads, 1, 2);
    const auto rot = [&](const Tensor& x) { return slice(x, -1, 0, rotary_ndims); };
    const auto pass = [&](const Tensor& x) { return slice(x, -1, rotary_ndims, head_dim - rotary_ndims); };
    Tensor query_rot = rot(states.query), query_pass = pass(states.query);
    Tensor key_rot = rot(states.key), key_pass = pass(states.key);
    std::tie(query_rot, key_rot) = rotate_halves(query_rot, key_rot, positions);
    states.query = cat({query_rot, query_pass}, -1);
    states.key = cat({key_rot, key_pass}, -1);
    AttentionOutputs attention = attend(call, layer_idx, states, positions, attention_mask);
    attention.output = self.result(dense(attention.output));
    return attention;
  }

  Linear query_key_value, dense;
  Norm q_layernorm, k_layernorm;
  std::int64_t num_heads, head_dim, rotary_ndims;
  AttentionCall call;
  std::size_t layer_idx;
  ModuleId module;
};

// PersimmonDecoderLayer.forward: dropout behind the MLP alone.
Tensor layer_forward(const TextLayer& layer, const Tensor& hidden_in, const PositionEmbeddings& positions,
                     const Tensor& attention_mask) {
  Tensor residual = hidden_in;
  Tensor hidden_states = layer.input_norm(hidden_in);
  AttentionOutputs attention = layer.self_attn(hidden_states, positions, attention_mask);
  hidden_states = std::move(attention.output);  // the weights stay in `_` until the layer returns
  hidden_states = add(residual, hidden_states);
  residual = hidden_states;
  hidden_states = layer.feedforward_norm(hidden_states);
  hidden_states = layer.mlp(hidden_states);
  hidden_states = dropout(hidden_states, layer.residual_dropout);
  return add(hidden_states, residual);
}

std::unique_ptr<DecoderLayer> make_layer(const Builder& builder, const TextConfig& c, const ModelOptions& options,
                                         std::size_t) {
  auto layer = std::make_unique<TextLayer>(builder, layer_forward);
  const auto norm = [&](const char* name) {
    return Norm(builder.child(name, kNames.rms_norm), torch_layer_norm, {c.hidden_size}, true);
  };
  layer->self_attn = PersimmonAttention(builder.child("self_attn", kNames.attention), c, options);
  layer->mlp = PlainMLP(builder.child("mlp", kNames.mlp), c, "dense_h_to_4h", "dense_4h_to_h", true);
  layer->residual_dropout = c.layer_dropout;
  layer->input_norm = norm("input_layernorm");
  layer->feedforward_norm = norm("post_attention_layernorm");
  return layer;
}

DecoderParts parts(const TextConfig& config, const ModelOptions& options) {
  DecoderParts parts = parts_of(config, options, make_layer);
  parts.norm = final_norm(torch_layer_norm, true);
  parts.last_norm = "final_layernorm";
  return parts;
}

}  // namespace

namespace family {
extern const Family persimmon =
    text_family<read, parts>(kClasses, kBlocks, traits_with<Feature::quantization, Feature::zero3, Feature::fsdp>,
                             without_dropout<TextConfig, &TextConfig::layer_dropout>);
}  // namespace family

}  // namespace oometer
