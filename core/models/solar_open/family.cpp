#include "config/reader.h"
#include "models/kit/mixture.h"

/// transformers 5.23, models/solar_open/modeling_solar_open.py.
namespace oometer {

namespace {

constexpr LlamaClassNames kNames{"SolarOpenForCausalLM",    "SolarOpenModel", "SolarOpenDecoderLayer",
                                 "SolarOpenAttention",      "SolarOpenMLP",   "SolarOpenRMSNorm",
                                 "SolarOpenRotaryEmbedding"};
constexpr ModelClass kClasses[] = {{"solar_open", kNames.causal_lm}};
constexpr const char* kBlocks[] = {kNames.decoder_layer};

TextConfig read(ConfigReader& reader) {
  TextConfig d;
  d.names = &kNames;
  d.vocab_size = 196608;
  d.num_hidden_layers = 48;
  d.num_attention_heads = 64;
  d.num_key_value_heads = 8;
  d.max_position_embeddings = 131'072;
  TextConfig c = read_text_sizes(reader, d, 128);
  c.qkv_bias = reader.boolean("attention_bias", false);
  check_llama_heads(reader, c);
  read_grouped_experts(
      reader, c, {.num_experts = 128, .num_experts_per_tok = 8, .intermediate_size = 1280, .norm_topk_prob = true}, 1,
      0);
  reader.ignore({"intermediate_size", "use_qk_norm", "partial_rotary_factor", "num_nextn_predict_layers"});
  return c;
}

std::unique_ptr<DecoderLayer> make_layer(const Builder& builder, const TextConfig& c, const ModelOptions& options,
                                         std::size_t) {
  return pre_norm_layer(builder, c, options, {}, [&](const Builder& layer) {
    return make_moe_with_shared(layer.child("mlp", "SolarOpenMoE"), c, "SolarOpenExperts", "SolarOpenTopkRouter", true);
  });
}

DecoderParts parts(const TextConfig& config, const ModelOptions& options) {
  return parts_of(config, options, make_layer);
}

}  // namespace

namespace family {
extern const Family solar_open = mixture_family<read, parts>(
    kClasses, kBlocks, convert_mixture_targets, traits_with<Feature::quantization, Feature::zero3, Feature::fsdp>);
}  // namespace family

}  // namespace oometer
