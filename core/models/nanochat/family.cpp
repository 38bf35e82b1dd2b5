#include "config/reader.h"
#include "models/kit/text_family.h"
#include "ops/ops.h"

/// transformers 5.23, models/nanochat/modeling_nanochat.py.
namespace oometer {

namespace {

constexpr LlamaClassNames kNames{"NanoChatForCausalLM",    "NanoChatModel", "NanoChatDecoderLayer",
                                 "NanoChatAttention",      "NanoChatMLP",   "NanoChatRMSNorm",
                                 "NanoChatRotaryEmbedding"};
constexpr ModelClass kClasses[] = {{"nanochat", kNames.causal_lm}};
constexpr const char* kBlocks[] = {kNames.decoder_layer};

TextConfig read(ConfigReader& reader) {
  TextConfig d;
  d.names = &kNames;
  d.vocab_size = 50304;
  d.hidden_size = 768;
  d.intermediate_size = 8192;
  d.num_hidden_layers = 12;
  d.num_attention_heads = 6;
  d.num_key_value_heads = 0;
  d.hidden_act = Activation::relu2;
  d.has_pad_token = true;
  TextConfig c = read_text_sizes(reader, d);
  c.qkv_bias = c.output_bias = reader.boolean("attention_bias", false);
  c.softcaps_logits = !reader.is_null("final_logit_softcapping");
  reader.ignore({"final_logit_softcapping"});
  check_llama_heads(reader, c);
  return c;
}

std::function<Tensor(const Tensor&)> make_norm(const Builder& builder, std::int64_t, std::int64_t) {
  return Norm(builder, l2_norm);
}

std::unique_ptr<DecoderLayer> make_layer(const Builder& builder, const TextConfig& c, const ModelOptions& options,
                                         std::size_t) {
  AttentionParts its;
  its.norms_at = HeadNorms::rotated;
  its.norm_type = kNames.rms_norm;
  its.make_norm = make_norm;
  auto layer = std::make_unique<TextLayer>(builder, pre_norm);
  layer->self_attn = TextAttention(builder.child("self_attn", kNames.attention), c, options, its);
  layer->mlp = PlainMLP(builder.child("mlp", kNames.mlp), c, "fc1", "fc2", false);
  layer->input_norm = Norm(builder.child("input_layernorm", kNames.rms_norm), l2_norm);
  layer->feedforward_norm = Norm(builder.child("post_attention_layernorm", kNames.rms_norm), l2_norm);
  return layer;
}

DecoderParts parts(const TextConfig& config, const ModelOptions& options) {
  DecoderParts parts = parts_of(config, options, make_layer);
  parts.norm = [](const Builder& builder, std::int64_t) { return Norm(builder, l2_norm); };
  parts.norms_first = true;
  return parts;
}

}  // namespace

namespace family {
extern const Family nanochat =
    text_family<read, parts>(kClasses, kBlocks, traits_with<Feature::quantization, Feature::zero3, Feature::fsdp>);
}  // namespace family

}  // namespace oometer
