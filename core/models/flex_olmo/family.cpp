#include "config/reader.h"
#include "models/kit/mixture.h"
#include "models/kit/recurrent.h"

/// transformers 5.23, models/flex_olmo/modeling_flex_olmo.py: OLMo 2's attention and norms around OLMoE's experts.
namespace oometer {

namespace {

constexpr LlamaClassNames kNames{"FlexOlmoForCausalLM",    "FlexOlmoModel",          "FlexOlmoDecoderLayer",
                                 "FlexOlmoAttention",      "FlexOlmoSparseMoeBlock", "FlexOlmoRMSNorm",
                                 "FlexOlmoRotaryEmbedding"};
constexpr ModelClass kClasses[] = {{"flex_olmo", kNames.causal_lm}};
constexpr const char* kBlocks[] = {kNames.decoder_layer};

struct FlexOlmoConfig : TextConfig {
  bool has_bos_token = false;  ///< bos_token_id

  bool operator==(const FlexOlmoConfig&) const = default;
};

FlexOlmoConfig read(ConfigReader& reader) {
  TextConfig d;
  d.names = &kNames;
  d.vocab_size = 100'352;
  d.num_key_value_heads = 0;
  d.max_position_embeddings = 4096;
  d.has_pad_token = true;
  FlexOlmoConfig c{read_text_sizes(reader, d)};
  c.qkv_bias = c.output_bias = reader.boolean("attention_bias", false);
  check_llama_heads(reader, c);
  c.has_bos_token = reader.has("bos_token_id");
  read_experts(reader, c, "num_experts", "num_local_experts",
               {.num_experts = 7, .num_experts_per_tok = 5, .balances = true});
  c.experts.intermediate_size = c.intermediate_size;
  c.experts.norm_topk_prob = reader.boolean("norm_topk_prob", false);
  return c;
}

std::unique_ptr<DecoderLayer> make_layer(const Builder& builder, const TextConfig& c, const ModelOptions& options,
                                         std::size_t) {
  auto layer = std::make_unique<TextLayer>(builder, post_norm);
  const auto norm = [&](const char* name) {
    return Norm(builder.child(name, kNames.rms_norm), rms_norm_float32, {c.hidden_size});
  };
  AttentionParts its;
  its.norms_at = HeadNorms::whole;
  its.norm = rms_norm_float32;
  its.norm_type = kNames.rms_norm;
  its.rotate = rotate_float32;
  layer->self_attn = TextAttention(builder.child("self_attn", kNames.attention), c, options, its);
  const Builder at = builder.child("mlp", kNames.mlp);
  SparseMoeBlock block(at);
  block.gate = Router(at.child("gate", "FlexOlmoTopKRouter"), c, best_probabilities);
  block.experts = make_experts(at, "FlexOlmoExperts", c);
  layer->mlp = block;
  layer->attention_norm = norm("post_attention_layernorm");
  layer->output_norm = norm("post_feedforward_layernorm");
  return layer;
}

DecoderParts parts(const FlexOlmoConfig& config, const ModelOptions& options) {
  DecoderParts parts = parts_of(config, options, make_layer);
  parts.rotary = embed_positions_float32;
  parts.norm = final_norm(rms_norm_float32);
  return parts;
}

ModelTraits traits(const FamilyConfig& config) {
  ModelTraits t = traits_with<Feature::quantization, Feature::zero3, Feature::fsdp>(config);
  if (!config.as<FlexOlmoConfig>().has_bos_token)  // the class's own is none, and generate then has a tensor less
    t.refuse(Feature::inference, "not-modelled", "generation without bos_token_id is not supported yet: set it");
  return t;
}

}  // namespace

namespace family {
extern const Family flex_olmo = [] {
  Family its = text_family_of<FlexOlmoConfig, read, balanced<parts, FlexOlmoConfig>>(kClasses, kBlocks, traits);
  its.convert_targets = convert_mixture_targets;
  return its;
}();
}  // namespace family

}  // namespace oometer
