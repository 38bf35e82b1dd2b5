#include "config/reader.h"
#include "models/gemma/gemma.h"
#include "models/kit/text_family.h"

/// transformers 5.23, models/gemma/modeling_gemma.py.
namespace oometer {

namespace {

constexpr LlamaClassNames kNames{"GemmaForCausalLM", "GemmaModel",   "GemmaDecoderLayer",   "GemmaAttention",
                                 "GemmaMLP",         "GemmaRMSNorm", "GemmaRotaryEmbedding"};
constexpr ModelClass kClasses[] = {
    {"gemma", kNames.causal_lm}, {"gemma", "GemmaForSequenceClassification"}, {"gemma", "GemmaForTokenClassification"}};
constexpr const char* kBlocks[] = {kNames.decoder_layer};

std::unique_ptr<DecoderLayer> make_layer(const Builder& builder, const TextConfig& c, const ModelOptions& options,
                                         std::size_t) {
  return pre_norm_layer(builder, c, options, {}, rms_norm_one_plus);
}

}  // namespace

TextConfig read_gemma_config(ConfigReader& reader) {
  TextConfig d;
  d.names = &kNames;
  d.vocab_size = 256000;
  d.hidden_size = 3072;
  d.intermediate_size = 24576;
  d.num_hidden_layers = 28;
  d.num_attention_heads = 16;
  d.num_key_value_heads = 16;
  d.max_position_embeddings = 8192;
  d.hidden_act = Activation::gelu_tanh;
  d.tie_word_embeddings = d.has_pad_token = true;
  TextConfig c = read_text_sizes(reader, d, 256);
  c.qkv_bias = c.output_bias = reader.boolean("attention_bias", false);
  check_llama_heads(reader, c);
  reader.ignore({"hidden_activation", "query_pre_attn_scalar"});  // of older files; the class reads hidden_act
  return c;
}

DecoderParts gemma_parts(const TextConfig& config, const ModelOptions& options) {
  DecoderParts parts = parts_of(config, options, make_layer);
  parts.scales_embeddings = true;
  parts.norm = final_norm(norm_of(options.liger, rms_norm_one_plus));
  return parts;
}

namespace {

ModelTraits traits(const FamilyConfig& config) {
  ModelTraits t = text_traits(config.as<TextConfig>());
  allow_compared(t, {Feature::liger, Feature::quantization, Feature::zero3, Feature::fsdp});
  t.liger.swiglu = config.as<TextConfig>().hidden_act == Activation::gelu_tanh;  // LigerGEGLUMLP
  t.ia3_targets = {"q_proj", "v_proj", "down_proj"};
  return t;
}

// PaliGemma has it set, and makes its masks itself.
TextConfig read(ConfigReader& reader) {
  reader.refuse("use_bidirectional_attention", "attention to both sides is not supported yet");
  return read_gemma_config(reader);
}

}  // namespace

namespace family {
extern const Family gemma = text_family<read, gemma_parts>(kClasses, kBlocks, traits);
}  // namespace family

}  // namespace oometer
