#include "config/reader.h"
#include "models/kit/text_family.h"

/// transformers 5.23, models/ernie4_5/modeling_ernie4_5.py.
namespace oometer {

namespace {

constexpr LlamaClassNames kNames{"Ernie4_5ForCausalLM",    "Ernie4_5Model", "Ernie4_5DecoderLayer",
                                 "Ernie4_5Attention",      "Ernie4_5MLP",   "Ernie4_5RMSNorm",
                                 "Ernie4_5RotaryEmbedding"};
constexpr ModelClass kClasses[] = {{"ernie4_5", kNames.causal_lm}};
constexpr const char* kBlocks[] = {kNames.decoder_layer};

TextConfig read(ConfigReader& reader) {
  TextConfig d;
  d.names = &kNames;
  d.vocab_size = 103424;
  d.hidden_size = 1024;
  d.intermediate_size = 3072;
  d.num_hidden_layers = 18;
  d.num_attention_heads = 16;
  d.num_key_value_heads = 2;
  d.max_position_embeddings = 131'072;
  d.tie_word_embeddings = d.has_pad_token = true;
  TextConfig c = read_text_sizes(reader, d, 128);
  c.qkv_bias = c.output_bias = c.mlp_bias = reader.boolean("use_bias", false);
  c.attention_dropout = 0;  // Ernie4_5Attention
  check_llama_heads(reader, c);
  return c;
}

std::unique_ptr<DecoderLayer> make_layer(const Builder& builder, const TextConfig& c, const ModelOptions& options,
                                         std::size_t) {
  AttentionParts its;
  its.rotate = rotate_spread_float32;
  return pre_norm_layer(builder, c, options, its);
}

DecoderParts parts(const TextConfig& config, const ModelOptions& options) {
  DecoderParts parts = parts_of(config, options, make_layer);
  parts.rotary = embed_positions_float32;
  return parts;
}

}  // namespace

namespace family {
extern const Family ernie4_5 =
    text_family<read, parts>(kClasses, kBlocks, traits_with<Feature::quantization, Feature::zero3, Feature::fsdp>);
}  // namespace family

}  // namespace oometer
