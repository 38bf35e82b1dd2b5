#include "config/reader.h"
#include "models/kit/text_family.h"

/// transformers 5.23, models/arcee/modeling_arcee.py.
namespace oometer {

namespace {

constexpr LlamaClassNames kNames{"ArceeForCausalLM", "ArceeModel",   "ArceeDecoderLayer",   "ArceeAttention",
                                 "ArceeMLP",         "ArceeRMSNorm", "ArceeRotaryEmbedding"};
constexpr ModelClass kClasses[] = {{"arcee", kNames.causal_lm},
                                   {"arcee", "ArceeForSequenceClassification"},
                                   {"arcee", "ArceeForTokenClassification"},
                                   {"arcee", "ArceeForQuestionAnswering"}};
constexpr const char* kBlocks[] = {kNames.decoder_layer};

TextConfig read(ConfigReader& reader) {
  TextConfig d;
  d.names = &kNames;
  d.hidden_size = 2560;
  d.intermediate_size = 18432;
  d.num_key_value_heads = 0;
  d.max_position_embeddings = 4096;
  d.hidden_act = Activation::relu2;
  TextConfig c = read_text_sizes(reader, d);
  c.qkv_bias = c.output_bias = reader.boolean("attention_bias", false);
  c.mlp_bias = reader.boolean("mlp_bias", false);
  check_llama_heads(reader, c);
  return c;
}

std::unique_ptr<DecoderLayer> make_layer(const Builder& builder, const TextConfig& c, const ModelOptions& options,
                                         std::size_t) {
  return pre_norm_layer(builder, c, options, {}, [&](const Builder& layer) {
    return PlainMLP(layer.child("mlp", kNames.mlp), c, "up_proj", "down_proj", c.mlp_bias);
  });
}

DecoderParts parts(const TextConfig& config, const ModelOptions& options) {
  return parts_of(config, options, make_layer);
}

}  // namespace

namespace family {
extern const Family arcee =
    text_family<read, parts>(kClasses, kBlocks, traits_with<Feature::quantization, Feature::zero3, Feature::fsdp>);
}  // namespace family

}  // namespace oometer
