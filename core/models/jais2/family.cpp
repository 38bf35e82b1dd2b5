#include "config/reader.h"
#include "models/kit/layer_norm_layer.h"
#include "models/kit/text_family.h"

/// transformers 5.23, models/jais2/modeling_jais2.py: Llama with LayerNorm and Nemotron's MLP.
namespace oometer {

namespace {

constexpr LlamaClassNames kNames{"Jais2ForCausalLM", "Jais2Model", "Jais2DecoderLayer",   "Jais2Attention",
                                 "Jais2MLP",         "LayerNorm",  "Jais2RotaryEmbedding"};
constexpr ModelClass kClasses[] = {{"jais2", kNames.causal_lm}};
constexpr const char* kBlocks[] = {kNames.decoder_layer};

TextConfig read(ConfigReader& reader) {
  TextConfig d;
  d.names = &kNames;
  d.vocab_size = 150'272;
  d.hidden_size = 3328;
  d.intermediate_size = 26'624;
  d.num_attention_heads = 26;
  d.num_key_value_heads = 0;
  d.max_position_embeddings = 8192;
  d.hidden_act = Activation::relu2;
  TextConfig c = read_text_sizes(reader, d);
  c.qkv_bias = c.output_bias = reader.boolean("attention_bias", true);
  c.mlp_bias = reader.boolean("mlp_bias", true);
  reader.ignore({"layer_norm_eps"});
  check_llama_heads(reader, c);
  return c;
}

std::unique_ptr<DecoderLayer> make_layer(const Builder& builder, const TextConfig& c, const ModelOptions& options,
                                         std::size_t) {
  return layer_norm_layer(builder, c, options, "up_proj", "down_proj");
}

DecoderParts parts(const TextConfig& config, const ModelOptions& options) {
  DecoderParts parts = parts_of(config, options, make_layer);
  parts.norm = final_norm(torch_layer_norm, true);
  return parts;
}

}  // namespace

namespace family {
extern const Family jais2 =
    text_family<read, parts>(kClasses, kBlocks, traits_with<Feature::quantization, Feature::zero3, Feature::fsdp>);
}  // namespace family

}  // namespace oometer
