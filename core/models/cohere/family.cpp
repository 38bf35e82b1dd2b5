#include "config/reader.h"
#include "models/kit/text_family.h"
#include "models/llama/llama.h"

/// transformers 5.23, models/cohere/modeling_cohere.py.
namespace oometer {

namespace {

constexpr LlamaClassNames kNames{"CohereForCausalLM", "CohereModel",     "CohereDecoderLayer",   "CohereAttention",
                                 "CohereMLP",         "CohereLayerNorm", "CohereRotaryEmbedding"};
constexpr ModelClass kClasses[] = {{"cohere", kNames.causal_lm}};
constexpr const char* kBlocks[] = {kNames.decoder_layer};

TextConfig read(ConfigReader& reader) {
  TextConfig d;
  d.names = &kNames;
  d.vocab_size = 256000;
  d.hidden_size = 8192;
  d.intermediate_size = 22528;
  d.num_hidden_layers = 40;
  d.num_attention_heads = 64;
  d.num_key_value_heads = 0;
  d.max_position_embeddings = 8192;
  d.tie_word_embeddings = d.has_pad_token = true;
  TextConfig c = read_text_sizes(reader, d);
  c.qkv_bias = c.output_bias = reader.boolean("attention_bias", false);
  c.norms_queries = reader.boolean("use_qk_norm", false);
  reader.ignore({"logit_scale"});
  check_llama_heads(reader, c);
  return c;
}

std::unique_ptr<DecoderLayer> make_layer(const Builder& builder, const TextConfig& c, const ModelOptions& options,
                                         std::size_t) {
  auto layer = std::make_unique<TextLayer>(builder, parallel);
  const auto norm = [&](const char* name) {
    return Norm(builder.child(name, kNames.rms_norm), cohere_layer_norm, {c.hidden_size});
  };
  AttentionParts its;
  its.rotate = rotate_pairs_float32;
  its.norm = cohere_layer_norm;
  its.norm_type = kNames.rms_norm;
  if (c.norms_queries) its.norms_at = HeadNorms::viewed;
  layer->self_attn = TextAttention(builder.child("self_attn", kNames.attention), c, options, its);
  layer->mlp = LlamaMLP(builder.child("mlp", kNames.mlp), c);
  layer->input_norm = norm("input_layernorm");
  return layer;
}

DecoderParts parts(const TextConfig& config, const ModelOptions& options) {
  DecoderParts parts = parts_of(config, options, make_layer);
  parts.norm = final_norm(cohere_layer_norm);
  parts.logits = [](const Tensor& logits) { return mul_scalar(logits); };
  parts.fused_states = mul_scalar;
  return parts;
}

}  // namespace

namespace family {
extern const Family cohere =
    text_family<read, parts>(kClasses, kBlocks, traits_with<Feature::quantization, Feature::zero3, Feature::fsdp>);
}  // namespace family

}  // namespace oometer
