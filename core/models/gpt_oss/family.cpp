#include "config/reader.h"
#include "models/gpt_oss/gpt_oss.h"

/// transformers 5.23, models/gpt_oss/modeling_gpt_oss.py.
namespace oometer {

namespace {

constexpr LlamaClassNames kNames{"GptOssForCausalLM", "GptOssModel",   "GptOssDecoderLayer",   "GptOssAttention",
                                 "GptOssMLP",         "GptOssRMSNorm", "GptOssRotaryEmbedding"};
constexpr ModelClass kClasses[] = {{"gpt_oss", kNames.causal_lm},
                                   {"gpt_oss", "GptOssForSequenceClassification"},
                                   {"gpt_oss", "GptOssForTokenClassification"}};
constexpr const char* kBlocks[] = {kNames.decoder_layer};

TextConfig read(ConfigReader& reader) {
  TextConfig d;
  d.names = &kNames;
  d.vocab_size = 201088;
  d.hidden_size = d.intermediate_size = 2880;
  d.num_hidden_layers = 36;
  d.num_attention_heads = 64;
  d.num_key_value_heads = 8;
  d.max_position_embeddings = 131'072;
  TextConfig c = read_text_sizes(reader, d, 64);
  c.qkv_bias = c.output_bias = reader.boolean("attention_bias", true);
  reader.ignore({"swiglu_alpha", "swiglu_limit", "experts_per_token", "initial_context_length"});
  check_llama_heads(reader, c);
  if (reader.is_object("quantization_config") && !reader.object("quantization_config").boolean("dequantize", false))
    reader.fail("quantization_config", "not-modelled",
                "found weights of 4 bits (MXFP4), which are not supported yet: leave it out, or set \"dequantize\": "
                "true, for weights of training.precision");
  read_mixed_layers(reader, c, 2, 128);
  read_experts(reader, c, "num_local_experts", "num_experts",
               {.num_experts = 128, .num_experts_per_tok = 4, .balances = true});
  c.experts.intermediate_size = c.intermediate_size;
  c.float32_frequencies = true;  // GptOssConfig's default is YaRN
  return c;
}

std::unique_ptr<DecoderLayer> make_layer(const Builder& builder, const TextConfig& c, const ModelOptions& options,
                                         std::size_t) {
  return std::make_unique<GptOssLayer>(builder, c, options);
}

DecoderParts parts(const TextConfig& config, const ModelOptions& options) {
  DecoderParts parts = parts_of(config, options, make_layer);
  parts.rotary = embed_half_positions;
  parts.norm = final_norm(norm_of(options.liger, rms_norm_float32));
  parts.makes_both_masks = true;
  parts.masks_know_positions = false;
  return parts;
}

ModelTraits traits(const FamilyConfig& config) {
  ModelTraits t = traits_of_text_family(config);
  allow_compared(t, {Feature::quantization, Feature::zero3, Feature::fsdp, Feature::liger});
  t.liger.usual.swiglu = false;
  t.liger.usual.chunk_mem_const = 8;  // _GPT_OSS_FLCE_CHUNK_MEM_CONST
  t.liger.ignores.swiglu = true;      // its experts clamp
  t.refuse(Feature::sdpa, "inconsistent", "GPT-OSS has attention sinks, which SDPA has not: expected eager");
  t.refuse(Feature::flash_attention_2, "inconsistent", "GPT-OSS has attention sinks, which it has not: expected eager");
  t.refuse(Feature::packing, "inconsistent", "GPT-OSS makes its masks without looking for packed samples");
  return t;
}

}  // namespace

namespace family {
extern const Family gpt_oss = text_family<read, balanced<parts>>(kClasses, kBlocks, traits);
}  // namespace family

}  // namespace oometer
