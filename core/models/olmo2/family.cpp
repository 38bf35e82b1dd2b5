#include "config/reader.h"
#include "models/kit/text_family.h"
#include "models/llama/llama.h"

/// transformers 5.23, models/olmo2/modeling_olmo2.py.
namespace oometer {

namespace {

constexpr LlamaClassNames kNames{"Olmo2ForCausalLM", "Olmo2Model",   "Olmo2DecoderLayer",   "Olmo2Attention",
                                 "Olmo2MLP",         "Olmo2RMSNorm", "Olmo2RotaryEmbedding"};
constexpr ModelClass kClasses[] = {{"olmo2", kNames.causal_lm}, {"olmo2", "Olmo2ForSequenceClassification"}};
constexpr const char* kBlocks[] = {kNames.decoder_layer};

TextConfig read(ConfigReader& reader) {
  TextConfig d;
  d.names = &kNames;
  d.vocab_size = 50304;
  d.num_key_value_heads = 0;
  d.has_pad_token = true;
  TextConfig c = read_text_sizes(reader, d);
  c.qkv_bias = c.output_bias = reader.boolean("attention_bias", false);
  check_llama_heads(reader, c);
  return c;
}

std::unique_ptr<DecoderLayer> make_layer(const Builder& builder, const TextConfig& c, const ModelOptions& options,
                                         std::size_t) {
  auto layer = std::make_unique<TextLayer>(builder, post_norm);
  const auto norm = [&](const char* name) {
    return Norm(builder.child(name, kNames.rms_norm), norm_of(options.liger, rms_norm_float32, liger_norm_apart),
                {c.hidden_size});
  };
  AttentionParts its;
  its.norms_at = HeadNorms::whole;
  its.norm = rms_norm_float32;  // Liger leaves these of a model that is made
  its.norm_type = kNames.rms_norm;
  its.rotate = rotate_float32;
  layer->self_attn = TextAttention(builder.child("self_attn", kNames.attention), c, options, its);
  layer->mlp = LlamaMLP(builder.child("mlp", kNames.mlp), c, options.liger);
  layer->attention_norm = norm("post_attention_layernorm");
  layer->output_norm = norm("post_feedforward_layernorm");
  return layer;
}

DecoderParts parts(const TextConfig& config, const ModelOptions& options) {
  DecoderParts parts = parts_of(config, options, make_layer);
  parts.rotary = embed_positions_float32;
  parts.norm = final_norm(norm_of(options.liger, rms_norm_float32));
  return parts;
}

}  // namespace

namespace family {
extern const Family olmo2 = text_family<read, parts>(
    kClasses, kBlocks, traits_with<Feature::quantization, Feature::zero3, Feature::fsdp, Feature::liger>);
}  // namespace family

}  // namespace oometer
