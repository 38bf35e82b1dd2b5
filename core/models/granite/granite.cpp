#include "models/granite/granite.h"

#include "config/reader.h"
#include "models/kit/text_family.h"

namespace oometer {

TextConfig read_granite_config(ConfigReader& reader) {
  TextConfig d;
  d.names = &kGraniteNames;
  d.num_key_value_heads = 0;
  TextConfig c = read_text_sizes(reader, d);
  c.qkv_bias = c.output_bias = reader.boolean("attention_bias", false);
  c.mlp_bias = reader.boolean("mlp_bias", false);
  reader.ignore({"embedding_multiplier", "logits_scaling", "residual_multiplier", "attention_multiplier"});
  check_llama_heads(reader, c);
  return c;
}

namespace {

std::unique_ptr<DecoderLayer> make_layer(const Builder& builder, const TextConfig& c, const ModelOptions& options,
                                         std::size_t) {
  auto layer = pre_norm_layer(builder, c, options);
  layer->scales_residual = true;
  return layer;
}

}  // namespace

DecoderParts granite_parts(const TextConfig& config, const ModelOptions& options) {
  DecoderParts parts = parts_of(config, options, make_layer);
  parts.scale = mul_scalar;
  parts.logits = [](const Tensor& logits) { return div_scalar(logits); };
  parts.fused_states = div_scalar;
  return parts;
}

}  // namespace oometer
