#include "models/kit/text_family.h"
#include "models/phi3/phi3.h"

/// transformers 5.23, models/phi3/modeling_phi3.py.
namespace oometer {

namespace {

constexpr LlamaClassNames kNames{"Phi3ForCausalLM", "Phi3Model",   "Phi3DecoderLayer",   "Phi3Attention",
                                 "Phi3MLP",         "Phi3RMSNorm", "Phi3RotaryEmbedding"};
constexpr ModelClass kClasses[] = {
    {"phi3", kNames.causal_lm}, {"phi3", "Phi3ForSequenceClassification"}, {"phi3", "Phi3ForTokenClassification"}};
constexpr const char* kBlocks[] = {kNames.decoder_layer};

TextConfig read(ConfigReader& reader) {
  TextConfig d;
  d.names = &kNames;
  d.vocab_size = 32064;
  d.hidden_size = 3072;
  d.intermediate_size = 8192;
  d.num_key_value_heads = 0;
  d.max_position_embeddings = 4096;
  d.has_pad_token = true;
  return read_phi3_sizes(reader, d);
}

DecoderParts parts(const TextConfig& config, const ModelOptions& options) {
  return parts_of(config, options, make_phi3_layer);
}

}  // namespace

namespace family {
extern const Family phi3 = text_family<read, parts>(
    kClasses, kBlocks, traits_with<Feature::quantization, Feature::zero3, Feature::fsdp, Feature::liger>,
    without_dropout<TextConfig, &TextConfig::residual_dropout>);
}  // namespace family

}  // namespace oometer
