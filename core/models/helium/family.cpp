#include "config/reader.h"
#include "models/kit/text_family.h"

/// transformers 5.23, models/helium/modeling_helium.py.
namespace oometer {

namespace {

constexpr LlamaClassNames kNames{"HeliumForCausalLM", "HeliumModel",   "HeliumDecoderLayer",   "HeliumAttention",
                                 "HeliumMLP",         "HeliumRMSNorm", "HeliumRotaryEmbedding"};
constexpr ModelClass kClasses[] = {{"helium", kNames.causal_lm},
                                   {"helium", "HeliumForSequenceClassification"},
                                   {"helium", "HeliumForTokenClassification"}};
constexpr const char* kBlocks[] = {kNames.decoder_layer};

TextConfig read(ConfigReader& reader) {
  TextConfig d;
  d.names = &kNames;
  d.vocab_size = 48000;
  d.hidden_size = 2560;
  d.intermediate_size = 7040;
  d.num_hidden_layers = 24;
  d.num_attention_heads = 20;
  d.num_key_value_heads = 20;
  d.max_position_embeddings = 4096;
  d.has_pad_token = true;
  TextConfig c = read_text_sizes(reader, d, 128);
  c.qkv_bias = reader.boolean("attention_bias", false);
  c.mlp_bias = reader.boolean("mlp_bias", false);
  check_llama_heads(reader, c);
  if (c.num_attention_heads * c.head_dim != c.hidden_size)  // o_proj is as wide as hidden_size
    reader.fail_found("hidden_size", "inconsistent", "expected num_attention_heads times head_dim");
  return c;
}

std::unique_ptr<DecoderLayer> make_layer(const Builder& builder, const TextConfig& c, const ModelOptions& options,
                                         std::size_t) {
  AttentionParts its;
  its.rotate = rotate_pairs;
  return pre_norm_layer(builder, c, options, its, rms_norm_cast_weight);
}

DecoderParts parts(const TextConfig& config, const ModelOptions& options) {
  DecoderParts parts = parts_of(config, options, make_layer);
  parts.norm = final_norm(rms_norm_cast_weight);
  return parts;
}

}  // namespace

namespace family {
extern const Family helium =
    text_family<read, parts>(kClasses, kBlocks, traits_with<Feature::quantization, Feature::zero3, Feature::fsdp>);
}  // namespace family

}  // namespace oometer
