#include <string>

#include "config/reader.h"
#include "models/gemma2/gemma2.h"
#include "models/kit/text_family.h"
#include "models/llama/llama.h"

/// transformers 5.23, models/gemma2/modeling_gemma2.py.
namespace oometer {

namespace {

constexpr LlamaClassNames kNames{"Gemma2ForCausalLM", "Gemma2Model",   "Gemma2DecoderLayer",   "Gemma2Attention",
                                 "Gemma2MLP",         "Gemma2RMSNorm", "Gemma2RotaryEmbedding"};
constexpr ModelClass kClasses[] = {{"gemma2", kNames.causal_lm},
                                   {"gemma2", "Gemma2ForSequenceClassification"},
                                   {"gemma2", "Gemma2ForTokenClassification"}};
constexpr const char* kBlocks[] = {kNames.decoder_layer};

std::unique_ptr<DecoderLayer> make_layer(const Builder& builder, const TextConfig& c, const ModelOptions& options,
                                         std::size_t) {
  auto layer = std::make_unique<TextLayer>(builder, sandwich_norm);
  const auto with_liger = norm_of(options.liger, rms_norm_one_plus, liger_norm_apart);
  const auto norm = [&](const char* name) {
    return Norm(builder.child(name, kNames.rms_norm), with_liger, {c.hidden_size});
  };
  layer->self_attn = TextAttention(builder.child("self_attn", kNames.attention), c, options);
  layer->mlp = LlamaMLP(builder.child("mlp", kNames.mlp), c, options.liger);
  layer->input_norm = norm("input_layernorm");
  layer->attention_norm = norm("post_attention_layernorm");
  layer->feedforward_norm = norm("pre_feedforward_layernorm");
  layer->output_norm = norm("post_feedforward_layernorm");
  return layer;
}

}  // namespace

TextConfig read_gemma2_config(ConfigReader& reader) {
  TextConfig d;
  d.names = &kNames;
  d.vocab_size = 256000;
  d.hidden_size = 2304;
  d.intermediate_size = 9216;
  d.num_hidden_layers = 26;
  d.num_attention_heads = 8;
  d.num_key_value_heads = 4;
  d.max_position_embeddings = 8192;
  d.hidden_act = Activation::gelu_tanh;
  d.tie_word_embeddings = d.has_pad_token = true;
  TextConfig c = read_text_sizes(reader, d, 256);
  c.qkv_bias = c.output_bias = reader.boolean("attention_bias", false);
  c.hidden_act = reader.activation("hidden_activation", d.hidden_act);
  c.softcaps_attention = !reader.is_null("attn_logit_softcapping");
  c.softcaps_logits = !reader.is_null("final_logit_softcapping");
  reader.ignore({"attn_logit_softcapping", "final_logit_softcapping", "query_pre_attn_scalar"});
  if (c.hidden_size % c.num_attention_heads != 0)
    reader.fail_found("hidden_size", "inconsistent",
                      "expected a multiple of num_attention_heads (" + std::to_string(c.num_attention_heads) + ")");
  check_llama_heads(reader, c);
  read_mixed_layers(reader, c, 2);
  return c;
}

DecoderParts gemma2_parts(const TextConfig& config, const ModelOptions& options) {
  DecoderParts parts = parts_of(config, options, make_layer);
  parts.scales_embeddings = true;
  parts.norm = final_norm(norm_of(options.liger, rms_norm_one_plus, liger_norm_apart));
  return parts;
}

namespace {

ModelTraits traits(const FamilyConfig& config) {
  ModelTraits t = text_traits(config.as<TextConfig>());
  allow_compared(t, {Feature::quantization, Feature::zero3, Feature::fsdp, Feature::liger});
  t.liger.swiglu = config.as<TextConfig>().hidden_act == Activation::gelu_tanh;  // LigerGEGLUMLP
  t.ia3_targets = {"q_proj", "v_proj", "down_proj"};
  t.ln_tuning_targets = {"input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm",
                         "post_feedforward_layernorm", "norm"};
  t.refuse(Feature::sdpa, "inconsistent", "Gemma 2 caps its attention weights, which SDPA cannot: expected eager");
  return t;
}

// PaliGemma has it set, and makes its masks itself.
TextConfig read(ConfigReader& reader) {
  reader.refuse("use_bidirectional_attention", "attention to both sides is not supported yet");
  return read_gemma2_config(reader);
}

}  // namespace

namespace family {
extern const Family gemma2 = text_family<read, gemma2_parts>(kClasses, kBlocks, traits);
}  // namespace family

}  // namespace oometer
