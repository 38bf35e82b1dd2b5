#include "config/reader.h"
#include "models/kit/text_family.h"
#include "models/llama/llama.h"
#include "ops/ops.h"

/// transformers 5.23, models/seed_oss/modeling_seed_oss.py.
namespace oometer {

namespace {

constexpr LlamaClassNames kNames{"SeedOssForCausalLM", "SeedOssModel",   "SeedOssDecoderLayer",   "SeedOssAttention",
                                 "SeedOssMLP",         "SeedOssRMSNorm", "SeedOssRotaryEmbedding"};
constexpr ModelClass kClasses[] = {{"seed_oss", kNames.causal_lm},
                                   {"seed_oss", "SeedOssForSequenceClassification"},
                                   {"seed_oss", "SeedOssForTokenClassification"},
                                   {"seed_oss", "SeedOssForQuestionAnswering"}};
constexpr const char* kBlocks[] = {kNames.decoder_layer};

TextConfig read(ConfigReader& reader) {
  TextConfig d;
  d.names = &kNames;
  d.vocab_size = 155136;
  d.intermediate_size = 27648;
  d.num_hidden_layers = 64;
  d.num_attention_heads = 80;
  d.num_key_value_heads = 8;
  d.max_position_embeddings = 524'288;
  d.attention_dropout = 0.1;
  d.has_pad_token = true;
  TextConfig c = read_text_sizes(reader, d, 128);
  c.qkv_bias = reader.boolean("attention_bias", true);
  c.output_bias = reader.boolean("attention_out_bias", false);
  c.mlp_bias = reader.boolean("mlp_bias", false);
  c.residual_dropout = reader.number("residual_dropout", 0.1, 0, 1);
  reader.ignore({"pretraining_tp"});
  check_llama_heads(reader, c);
  return c;
}

std::unique_ptr<DecoderLayer> make_layer(const Builder& builder, const TextConfig& c, const ModelOptions& options,
                                         std::size_t) {
  return pre_norm_layer(builder, c, options, {}, [&](const Builder& layer) {
    return [mlp = LlamaMLP(layer.child("mlp", kNames.mlp), c), p = c.residual_dropout](const Tensor& x) {
      const Tensor down_proj = mlp(x);
      return dropout(down_proj, p);
    };
  });
}

DecoderParts parts(const TextConfig& config, const ModelOptions& options) {
  return parts_of(config, options, make_layer);
}

}  // namespace

namespace family {
extern const Family seed_oss =
    text_family<read, parts>(kClasses, kBlocks, traits_with<Feature::quantization, Feature::zero3, Feature::fsdp>);
}  // namespace family

}  // namespace oometer
