#include "config/reader.h"
#include "models/kit/text_family.h"

/// transformers 5.23, models/glm/modeling_glm.py.
namespace oometer {

namespace {

constexpr LlamaClassNames kNames{"GlmForCausalLM", "GlmModel",   "GlmDecoderLayer",   "GlmAttention",
                                 "GlmMLP",         "GlmRMSNorm", "GlmRotaryEmbedding"};
constexpr ModelClass kClasses[] = {
    {"glm", kNames.causal_lm}, {"glm", "GlmForSequenceClassification"}, {"glm", "GlmForTokenClassification"}};
constexpr const char* kBlocks[] = {kNames.decoder_layer};

TextConfig read(ConfigReader& reader) {
  TextConfig d;
  d.names = &kNames;
  d.vocab_size = 151552;
  d.intermediate_size = 13696;
  d.num_hidden_layers = 40;
  d.num_key_value_heads = 2;
  d.max_position_embeddings = 131'072;
  d.has_pad_token = true;
  TextConfig c = read_text_sizes(reader, d, 128);
  c.qkv_bias = reader.boolean("attention_bias", true);
  read_partial_rotary(reader, c, 0.5);
  check_llama_heads(reader, c);
  return c;
}

std::unique_ptr<DecoderLayer> make_layer(const Builder& builder, const TextConfig& c, const ModelOptions& options,
                                         std::size_t) {
  AttentionParts its;
  its.rotate = rotate_first_pairs;
  return pre_norm_layer(builder, c, options, its,
                        [&](const Builder& layer) { return FusedMLP(layer.child("mlp", kNames.mlp), c); });
}

DecoderParts parts(const TextConfig& config, const ModelOptions& options) {
  return parts_of(config, options, make_layer);
}

}  // namespace

namespace family {
extern const Family glm =
    text_family<read, parts>(kClasses, kBlocks, traits_with<Feature::quantization, Feature::zero3, Feature::fsdp>);
}  // namespace family

}  // namespace oometer
