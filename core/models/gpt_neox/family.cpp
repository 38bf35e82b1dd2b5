#include <tuple>

#include "config/reader.h"
#include "models/kit/text_family.h"
#include "ops/ops.h"

/// transformers 5.23, models/gpt_neox/modeling_gpt_neox.py.
namespace oometer {

namespace {

constexpr LlamaClassNames kNames{"GPTNeoXForCausalLM", "GPTNeoXModel", "GPTNeoXLayer",          "GPTNeoXAttention",
                                 "GPTNeoXMLP",         "LayerNorm",    "GPTNeoXRotaryEmbedding"};
constexpr ModelClass kClasses[] = {{"gpt_neox", kNames.causal_lm},
                                   {"gpt_neox", "GPTNeoXForSequenceClassification"},
                                   {"gpt_neox", "GPTNeoXForTokenClassification"},
                                   {"gpt_neox", "GPTNeoXForQuestionAnswering"}};
constexpr const char* kBlocks[] = {kNames.decoder_layer};

TextConfig read(ConfigReader& reader) {
  TextConfig d;
  d.names = &kNames;
  d.vocab_size = 50432;
  d.hidden_size = 6144;
  d.intermediate_size = 24576;
  d.num_hidden_layers = 44;
  d.num_attention_heads = 64;
  d.num_key_value_heads = 0;
  d.hidden_act = Activation::gelu;
  TextConfig c = read_text_sizes(reader, d);
  c.num_key_value_heads = c.num_attention_heads;
  share_hidden_size(reader, c);
  c.qkv_bias = c.output_bias = reader.boolean("attention_bias", true);
  c.is_parallel = reader.boolean("use_parallel_residual", true);
  c.layer_dropout = c.embedding_dropout = reader.number("hidden_dropout", 0, 0, 1);
  read_partial_rotary(reader, c, reader.number("rotary_pct", 0.25, 0, 1));
  reader.ignore({"layer_norm_eps", "classifier_dropout", "rotary_emb_base"});
  check_llama_heads(reader, c);
  return c;
}

struct GPTNeoXAttention {
  GPTNeoXAttention(const Builder& builder, const TextConfig& c, const ModelOptions& options)
      : query_key_value(builder.child("query_key_value", "Linear"), c.hidden_size, 3 * c.hidden_size, c.qkv_bias),
        dense(builder.child("dense", "Linear"), c.hidden_size, c.hidden_size, c.output_bias),
        head_size(c.head_dim),
        call(attention_call(c, options)),
        layer_idx(layer_index(builder)),
        module(builder.module) {}

  AttentionOutputs operator()(const Tensor& hidden_states, const PositionEmbeddings& positions,
                              const Tensor& attention_mask) const {
    ModuleCall self(hidden_states.context(), module);
    const Tensor qkv = heads_of(query_key_value(hidden_states), 3 * head_size);
    AttentionInputs states;
    {
      const TensorList chunks = split(qkv, {head_size, head_size, head_size}, -1);
      states = {chunks[0], chunks[1], chunks[2]};
    }
    std::tie(states.query, states.key) = rotate_first_halves(states.query, states.key, positions);
    AttentionOutputs attention = attend(call, layer_idx, states, positions, attention_mask);
    attention.output = self.result(dense(attention.output));
    return attention;
  }

  Linear query_key_value, dense;
  std::int64_t head_size;
  AttentionCall call;
  std::size_t layer_idx;
  ModuleId module;
};

/// GPTNeoXLayer.forward with use_parallel_residual: x = x + attn(ln1(x)) + mlp(ln2(x)).
Tensor side_by_side(const TextLayer& layer, const Tensor& hidden_states, const PositionEmbeddings& positions,
                    const Tensor& attention_mask) {
  AttentionOutputs attention = layer.self_attn(layer.input_norm(hidden_states), positions, attention_mask);
  attention.output = dropout(attention.output, layer.residual_dropout);
  Tensor mlp_output = layer.mlp(layer.feedforward_norm(hidden_states));
  mlp_output = dropout(mlp_output, layer.residual_dropout);
  const Tensor sum = add(mlp_output, attention.output);
  return add(sum, hidden_states);
}

/// Without it: x = x + attn(ln1(x)), x = x + mlp(ln2(x)).
Tensor one_by_one(const TextLayer& layer, const Tensor& hidden_states, const PositionEmbeddings& positions,
                  const Tensor& attention_mask) {
  AttentionOutputs attention = layer.self_attn(layer.input_norm(hidden_states), positions, attention_mask);
  Tensor& attn_output = attention.output;
  attn_output = dropout(attn_output, layer.residual_dropout);
  attn_output = add(attn_output, hidden_states);
  Tensor mlp_output = layer.mlp(layer.feedforward_norm(attn_output));
  mlp_output = dropout(mlp_output, layer.residual_dropout);
  return add(mlp_output, attn_output);
}

std::unique_ptr<DecoderLayer> make_layer(const Builder& builder, const TextConfig& c, const ModelOptions& options,
                                         std::size_t) {
  auto layer = std::make_unique<TextLayer>(builder, c.is_parallel ? side_by_side : one_by_one);
  const auto norm = [&](const char* name) {
    return Norm(builder.child(name, kNames.rms_norm), torch_layer_norm, {c.hidden_size}, true);
  };
  layer->input_norm = norm("input_layernorm");
  layer->feedforward_norm = norm("post_attention_layernorm");
  layer->self_attn = GPTNeoXAttention(builder.child("attention", kNames.attention), c, options);
  layer->mlp = PlainMLP(builder.child("mlp", kNames.mlp), c, "dense_h_to_4h", "dense_4h_to_h", true);
  layer->residual_dropout = c.layer_dropout;
  return layer;
}

DecoderParts parts(const TextConfig& config, const ModelOptions& options) {
  DecoderParts parts = parts_of(config, options, make_layer);
  parts.norm = final_norm(torch_layer_norm, true);
  parts.dropout = config.embedding_dropout;
  parts.model = "gpt_neox";
  parts.embed_tokens = "embed_in";
  parts.last_norm = "final_layer_norm";
  return parts;
}

ModelTraits traits(const FamilyConfig& config) {
  ModelTraits t = text_traits(config.as<TextConfig>());
  allow_compared(t, {Feature::quantization, Feature::zero3, Feature::fsdp});
  t.lora_targets = {"query_key_value"};
  t.ia3_targets = {"query_key_value", "dense_4h_to_h"};
  t.ia3_feedforward = {"dense_4h_to_h"};
  t.ln_tuning_targets = {};
  t.language = "gpt_neox";
  return t;
}

}  // namespace

namespace family {
extern const Family gpt_neox = text_family<read, parts>(
    kClasses, kBlocks, traits, without_dropout<TextConfig, &TextConfig::layer_dropout, &TextConfig::embedding_dropout>);
}  // namespace family

}  // namespace oometer
