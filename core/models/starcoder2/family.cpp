#include "config/reader.h"
#include "models/kit/layer_norm_layer.h"
#include "models/kit/text_family.h"

/// transformers 5.23, models/starcoder2/modeling_starcoder2.py.
namespace oometer {

namespace {

constexpr LlamaClassNames kNames{"Starcoder2ForCausalLM",    "Starcoder2Model", "Starcoder2DecoderLayer",
                                 "Starcoder2Attention",      "Starcoder2MLP",   "LayerNorm",
                                 "Starcoder2RotaryEmbedding"};
constexpr ModelClass kClasses[] = {{"starcoder2", kNames.causal_lm},
                                   {"starcoder2", "Starcoder2ForSequenceClassification"},
                                   {"starcoder2", "Starcoder2ForTokenClassification"}};
constexpr const char* kBlocks[] = {kNames.decoder_layer};

TextConfig read(ConfigReader& reader) {
  TextConfig d;
  d.names = &kNames;
  d.vocab_size = 49152;
  d.hidden_size = 3072;
  d.intermediate_size = 12288;
  d.num_hidden_layers = 30;
  d.num_attention_heads = 24;
  d.num_key_value_heads = 2;
  d.max_position_embeddings = 4096;
  d.hidden_act = Activation::gelu_tanh;
  d.tie_word_embeddings = true;
  TextConfig c = read_text_sizes(reader, d);
  c.qkv_bias = c.output_bias = c.mlp_bias = reader.boolean("use_bias", true);
  c.residual_dropout = reader.number("residual_dropout", 0, 0, 1);
  c.embedding_dropout = reader.number("embedding_dropout", 0, 0, 1);
  c.sliding_window = reader.optional_integer("sliding_window").value_or(0);
  reader.ignore({"norm_epsilon"});
  check_llama_heads(reader, c);
  return c;
}

std::unique_ptr<DecoderLayer> make_layer(const Builder& builder, const TextConfig& c, const ModelOptions& options,
                                         std::size_t) {
  return layer_norm_layer(builder, c, options, "c_fc", "c_proj");
}

DecoderParts parts(const TextConfig& config, const ModelOptions& options) {
  DecoderParts parts = parts_of(config, options, make_layer);
  parts.norm = final_norm(torch_layer_norm, true);
  parts.dropout = config.embedding_dropout;
  return parts;
}

}  // namespace

namespace family {
extern const Family starcoder2 =
    text_family<read, parts>(kClasses, kBlocks, traits_with<Feature::quantization, Feature::zero3, Feature::fsdp>);
}  // namespace family

}  // namespace oometer
