#include "config/reader.h"
#include "models/kit/text_family.h"

/// transformers 5.23, models/ministral/modeling_ministral.py.
namespace oometer {

namespace {

constexpr LlamaClassNames kNames{"MinistralForCausalLM",    "MinistralModel", "MinistralDecoderLayer",
                                 "MinistralAttention",      "MinistralMLP",   "MinistralRMSNorm",
                                 "MinistralRotaryEmbedding"};
constexpr ModelClass kClasses[] = {{"ministral", kNames.causal_lm},
                                   {"ministral", "MinistralForSequenceClassification"},
                                   {"ministral", "MinistralForTokenClassification"},
                                   {"ministral", "MinistralForQuestionAnswering"}};
constexpr const char* kBlocks[] = {kNames.decoder_layer};

TextConfig read(ConfigReader& reader) {
  TextConfig d;
  d.names = &kNames;
  d.intermediate_size = 14336;
  d.num_key_value_heads = 8;
  d.max_position_embeddings = 131'072;
  TextConfig c = read_text_sizes(reader, d);
  if (!reader.has("head_dim")) reader.fail("head_dim", "inconsistent", "found none; Ministral's attention needs one");
  check_llama_heads(reader, c);
  read_mixed_layers(reader, c, 0);
  return c;
}

std::unique_ptr<DecoderLayer> make_layer(const Builder& builder, const TextConfig& c, const ModelOptions& options,
                                         std::size_t) {
  return pre_norm_layer(builder, c, options);
}

DecoderParts parts(const TextConfig& config, const ModelOptions& options) {
  return parts_of(config, options, make_layer);
}

ModelTraits traits(const FamilyConfig& config) {
  ModelTraits t = traits_with<Feature::quantization, Feature::zero3, Feature::fsdp, Feature::liger>(config);
  t.liger.ignores.cross_entropy = true;  // modeling_ministral.py has no CrossEntropyLoss that it could replace
  return t;
}

}  // namespace

namespace family {
extern const Family ministral = text_family<read, parts>(kClasses, kBlocks, traits);
}  // namespace family

}  // namespace oometer
