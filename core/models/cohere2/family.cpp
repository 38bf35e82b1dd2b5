#include "config/reader.h"
#include "models/cohere2/cohere2.h"
#include "models/kit/text_family.h"
#include "models/llama/llama.h"

/// transformers 5.23, models/cohere2/modeling_cohere2.py.
namespace oometer {

namespace {

constexpr LlamaClassNames kNames{"Cohere2ForCausalLM", "Cohere2Model",     "Cohere2DecoderLayer",   "Cohere2Attention",
                                 "Cohere2MLP",         "Cohere2LayerNorm", "Cohere2RotaryEmbedding"};
constexpr ModelClass kClasses[] = {{"cohere2", kNames.causal_lm}};
constexpr const char* kBlocks[] = {kNames.decoder_layer};

}  // namespace

TextConfig read_cohere2_config(ConfigReader& reader) {
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
  c.head_dim = c.hidden_size / c.num_attention_heads;  // whatever the file says
  reader.ignore({"logit_scale", "rotary_pct", "order_of_interleaved_layers", "position_embedding_type"});
  check_llama_heads(reader, c);
  read_mixed_layers(reader, c, reader.integer("sliding_window_pattern", 4));
  return c;
}

namespace {

std::unique_ptr<DecoderLayer> make_layer(const Builder& builder, const TextConfig& c, const ModelOptions& options,
                                         std::size_t index) {
  auto layer = std::make_unique<TextLayer>(builder, parallel);
  const auto norm = [&](const char* name) {
    return Norm(builder.child(name, kNames.rms_norm), cohere_layer_norm, {c.hidden_size});
  };
  AttentionParts its;
  its.rotate = c.window_of(index) != 0 ? rotate_pairs_float32 : nullptr;
  layer->self_attn = TextAttention(builder.child("self_attn", kNames.attention), c, options, its);
  layer->mlp = LlamaMLP(builder.child("mlp", kNames.mlp), c);
  layer->input_norm = norm("input_layernorm");
  return layer;
}

}  // namespace

DecoderParts cohere2_text_parts(const TextConfig& config, const ModelOptions& options) {
  DecoderParts parts = parts_of(config, options, make_layer);
  parts.norm = final_norm(cohere_layer_norm);
  return parts;
}

namespace {

DecoderParts parts(const TextConfig& config, const ModelOptions& options) {
  DecoderParts parts = cohere2_text_parts(config, options);
  parts.logits = [](const Tensor& logits) { return mul_scalar(logits); };
  parts.fused_states = mul_scalar;
  return parts;
}

}  // namespace

namespace family {
extern const Family cohere2 = text_family<read_cohere2_config, parts>(
    kClasses, kBlocks, traits_with<Feature::quantization, Feature::zero3, Feature::fsdp>);
}  // namespace family

}  // namespace oometer
