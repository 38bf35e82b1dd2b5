#include "config/reader.h"
#include "models/kit/text_family.h"
#include "ops/ops.h"

/// transformers 5.23, models/phi/modeling_phi.py.
namespace oometer {

namespace {

constexpr LlamaClassNames kNames{"PhiForCausalLM", "PhiModel",  "PhiDecoderLayer",   "PhiAttention",
                                 "PhiMLP",         "LayerNorm", "PhiRotaryEmbedding"};
constexpr ModelClass kClasses[] = {
    {"phi", kNames.causal_lm}, {"phi", "PhiForSequenceClassification"}, {"phi", "PhiForTokenClassification"}};
constexpr const char* kBlocks[] = {kNames.decoder_layer};

TextConfig read(ConfigReader& reader) {
  TextConfig d;
  d.names = &kNames;
  d.vocab_size = 51200;
  d.hidden_size = 2048;
  d.intermediate_size = 8192;
  d.num_hidden_layers = 24;
  d.num_key_value_heads = 0;
  d.hidden_act = Activation::gelu_new;
  TextConfig c = read_text_sizes(reader, d);
  c.qkv_bias = c.output_bias = c.mlp_bias = true;
  c.norms_queries = reader.boolean("qk_layernorm", false);
  c.layer_dropout = reader.number("resid_pdrop", 0, 0, 1);
  if (reader.number("embd_pdrop", 0, 0, 1) != 0)
    reader.fail_found("embd_pdrop", "not-modelled", "dropout of Phi's embeddings is not supported yet");
  reader.ignore({"layer_norm_eps"});
  read_partial_rotary(reader, c, 0.5);
  check_llama_heads(reader, c);
  return c;
}

/// PhiDecoderLayer.forward.
Tensor side_by_side(const TextLayer& layer, const Tensor& residual, const PositionEmbeddings& positions,
                    const Tensor& attention_mask) {
  const Tensor hidden_states = layer.input_norm(residual);
  AttentionOutputs attention = layer.self_attn(hidden_states, positions, attention_mask);
  Tensor& attn_outputs = attention.output;
  attn_outputs = dropout(attn_outputs, layer.residual_dropout);
  Tensor feed_forward_hidden_states = layer.mlp(hidden_states);
  feed_forward_hidden_states = dropout(feed_forward_hidden_states, layer.residual_dropout);
  const Tensor sum = add(attn_outputs, feed_forward_hidden_states);
  return add(sum, residual);
}

std::unique_ptr<DecoderLayer> make_layer(const Builder& builder, const TextConfig& c, const ModelOptions& options,
                                         std::size_t) {
  auto layer = std::make_unique<TextLayer>(builder, side_by_side);
  const auto norm = [&](const char* name) {
    return Norm(builder.child(name, kNames.rms_norm), torch_layer_norm, {c.hidden_size}, true);
  };
  AttentionParts its;
  its.cuts_heads = true;
  its.norm = torch_layer_norm;
  if (c.norms_queries) its.norms_at = HeadNorms::transposed;
  its.q_norm = "q_layernorm";
  its.k_norm = "k_layernorm";
  its.norm_type = kNames.rms_norm;
  its.o_proj = "dense";
  layer->self_attn = TextAttention(builder.child("self_attn", kNames.attention), c, options, its);
  layer->mlp = PlainMLP(builder.child("mlp", kNames.mlp), c, "fc1", "fc2", true);
  layer->input_norm = norm("input_layernorm");
  layer->residual_dropout = c.layer_dropout;
  return layer;
}

DecoderParts parts(const TextConfig& config, const ModelOptions& options) {
  DecoderParts parts = parts_of(config, options, make_layer);
  parts.norm = final_norm(torch_layer_norm, true);
  parts.last_norm = "final_layernorm";
  parts.head_bias = true;
  return parts;
}

ModelTraits traits(const FamilyConfig& config) {
  ModelTraits t = text_traits(config.as<TextConfig>());
  allow_compared(t, {Feature::quantization, Feature::zero3, Feature::fsdp});
  t.lora_targets = {"q_proj", "v_proj", "fc1", "fc2"};
  t.ia3_targets = {"q_proj", "v_proj", "fc2"};
  t.ia3_feedforward = {"fc2"};
  t.ln_tuning_targets = {"input_layernorm", "final_layernorm"};
  return t;
}

}  // namespace

namespace family {
extern const Family phi =
    text_family<read, parts>(kClasses, kBlocks, traits, without_dropout<TextConfig, &TextConfig::layer_dropout>);
}  // namespace family

}  // namespace oometer
