#include "config/reader.h"
#include "models/kit/text_family.h"

/// transformers 5.23, models/granite/modeling_granite.py.
namespace oometer {

namespace {

constexpr LlamaClassNames kNames{"GraniteForCausalLM", "GraniteModel",   "GraniteDecoderLayer",   "GraniteAttention",
                                 "GraniteMLP",         "GraniteRMSNorm", "GraniteRotaryEmbedding"};
constexpr ModelClass kClasses[] = {{"granite", kNames.causal_lm}};
constexpr const char* kBlocks[] = {kNames.decoder_layer};

TextConfig read(ConfigReader& reader) {
  TextConfig d;
  d.names = &kNames;
  d.num_key_value_heads = 0;
  TextConfig c = read_text_sizes(reader, d);
  c.qkv_bias = c.output_bias = reader.boolean("attention_bias", false);
  c.mlp_bias = reader.boolean("mlp_bias", false);
  reader.ignore({"embedding_multiplier", "logits_scaling", "residual_multiplier", "attention_multiplier"});
  check_llama_heads(reader, c);
  return c;
}

std::unique_ptr<DecoderLayer> make_layer(const Builder& builder, const TextConfig& c, const ModelOptions& options,
                                         std::size_t) {
  auto layer = pre_norm_layer(builder, c, options);
  layer->scales_residual = true;
  return layer;
}

DecoderParts parts(const TextConfig& config, const ModelOptions& options) {
  DecoderParts parts = parts_of(config, options, make_layer);
  parts.scale = mul_scalar;
  parts.logits = [](const Tensor& logits) { return div_scalar(logits); };
  parts.fused_states = div_scalar;
  return parts;
}

ModelTraits traits(const FamilyConfig& config) {
  ModelTraits t = traits_with<Feature::quantization, Feature::zero3, Feature::fsdp, Feature::liger>(config);
  t.liger.usual.cross_entropy = t.liger.lacks.fused_linear_cross_entropy = true;  // which has no scale of logits
  t.liger.usual.fused_linear_cross_entropy = false;
  return t;
}

}  // namespace

namespace family {
extern const Family granite = text_family<read, parts>(kClasses, kBlocks, traits);
}  // namespace family

}  // namespace oometer
