#include "config/reader.h"
#include "models/kit/text_family.h"

/// transformers 5.23, models/glm4/modeling_glm4.py.
namespace oometer {

namespace {

constexpr LlamaClassNames kNames{"Glm4ForCausalLM", "Glm4Model",   "Glm4DecoderLayer",   "Glm4Attention",
                                 "Glm4MLP",         "Glm4RMSNorm", "Glm4RotaryEmbedding"};
constexpr ModelClass kClasses[] = {
    {"glm4", kNames.causal_lm}, {"glm4", "Glm4ForSequenceClassification"}, {"glm4", "Glm4ForTokenClassification"}};
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
  auto layer = std::make_unique<TextLayer>(builder, sandwich_norm);
  const auto norm = [&](const char* name) {
    return Norm(builder.child(name, kNames.rms_norm), norm_of(options.liger, rms_norm, liger_norm_apart),
                {c.hidden_size});
  };
  AttentionParts its;
  its.rotate = rotate_first_pairs;
  layer->self_attn = TextAttention(builder.child("self_attn", kNames.attention), c, options, its);
  layer->mlp = FusedMLP(builder.child("mlp", kNames.mlp), c, options.liger);
  layer->input_norm = norm("input_layernorm");
  layer->feedforward_norm = norm("post_attention_layernorm");
  layer->attention_norm = norm("post_self_attn_layernorm");
  layer->output_norm = norm("post_mlp_layernorm");
  return layer;
}

DecoderParts parts(const TextConfig& config, const ModelOptions& options) {
  DecoderParts parts = parts_of(config, options, make_layer);
  parts.norm = final_norm(norm_of(options.liger, rms_norm, liger_norm_apart));
  return parts;
}

ModelTraits traits(const FamilyConfig& config) {
  ModelTraits t = traits_with<Feature::quantization, Feature::zero3, Feature::fsdp, Feature::liger>(config);
  t.liger.usual.rope = false;
  t.liger.lacks.rope = true;  // its pairs are neighbours
  return t;
}

}  // namespace

namespace family {
extern const Family glm4 = text_family<read, parts>(kClasses, kBlocks, traits);
}  // namespace family

}  // namespace oometer
