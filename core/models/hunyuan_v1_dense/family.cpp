#include "config/reader.h"
#include "models/hunyuan_v1_dense/hunyuan_v1_dense.h"

/// transformers 5.23, models/hunyuan_v1_dense/modeling_hunyuan_v1_dense.py.
namespace oometer {

namespace {

constexpr LlamaClassNames kNames{"HunYuanDenseV1ForCausalLM",    "HunYuanDenseV1Model", "HunYuanDenseV1DecoderLayer",
                                 "HunYuanDenseV1Attention",      "HunYuanDenseV1MLP",   "HunYuanDenseV1RMSNorm",
                                 "HunYuanDenseV1RotaryEmbedding"};
constexpr ModelClass kClasses[] = {{"hunyuan_v1_dense", kNames.causal_lm},
                                   {"hunyuan_v1_dense", "HunYuanDenseV1ForSequenceClassification"}};
constexpr const char* kBlocks[] = {kNames.decoder_layer};

TextConfig read(ConfigReader& reader) { return read_hunyuan_text(reader, kNames); }

std::unique_ptr<DecoderLayer> make_layer(const Builder& builder, const TextConfig& c, const ModelOptions& options,
                                         std::size_t) {
  return pre_norm_layer(builder, c, options, hunyuan_attention(kNames));
}

DecoderParts parts(const TextConfig& config, const ModelOptions& options) {
  return parts_of(config, options, make_layer);
}

}  // namespace

TextConfig read_hunyuan_text(ConfigReader& reader, const LlamaClassNames& names) {
  TextConfig d;
  d.names = &names;
  d.vocab_size = 290943;
  d.num_key_value_heads = 0;
  d.has_pad_token = true;
  TextConfig c = read_text_sizes(reader, d);
  c.qkv_bias = c.output_bias = reader.boolean("attention_bias", false);
  reader.ignore({"pretraining_tp", "eod_token_id"});
  check_llama_heads(reader, c);
  return c;
}

AttentionParts hunyuan_attention(const LlamaClassNames& names) {
  AttentionParts its;
  its.norms_at = HeadNorms::rotated;
  its.norm = rms_norm;
  its.norm_type = names.rms_norm;
  its.q_norm = "query_layernorm";
  its.k_norm = "key_layernorm";
  return its;
}

namespace family {
extern const Family hunyuan_v1_dense =
    text_family<read, parts>(kClasses, kBlocks, traits_with<Feature::liger, Feature::zero3, Feature::fsdp>);
}  // namespace family

}  // namespace oometer
