#include "config/reader.h"
#include "models/kit/mixture.h"

/// transformers 5.23, models/glm4_moe/modeling_glm4_moe.py.
namespace oometer {

namespace {

constexpr LlamaClassNames kNames{"Glm4MoeForCausalLM", "Glm4MoeModel",   "Glm4MoeDecoderLayer",   "Glm4MoeAttention",
                                 "Glm4MoeMLP",         "Glm4MoeRMSNorm", "Glm4MoeRotaryEmbedding"};
constexpr ModelClass kClasses[] = {{"glm4_moe", kNames.causal_lm}};
constexpr const char* kBlocks[] = {kNames.decoder_layer};

TextConfig read(ConfigReader& reader) {
  TextConfig d;
  d.names = &kNames;
  d.vocab_size = 151552;
  d.intermediate_size = 10944;
  d.num_hidden_layers = 46;
  d.num_attention_heads = 96;
  d.num_key_value_heads = 8;
  d.max_position_embeddings = 131'072;
  TextConfig c = read_text_sizes(reader, d);
  c.qkv_bias = reader.boolean("attention_bias", false);
  c.norms_queries = reader.boolean("use_qk_norm", false);
  read_partial_rotary(reader, c, 0.5);
  check_llama_heads(reader, c);
  read_grouped_experts(
      reader, c, {.num_experts = 128, .num_experts_per_tok = 8, .intermediate_size = 1408, .norm_topk_prob = true}, 1,
      1);
  reader.ignore({"num_nextn_predict_layers", "num_mtp_layers"});  // the modelling code leaves them out
  return c;
}

std::unique_ptr<DecoderLayer> make_layer(const Builder& builder, const TextConfig& c, const ModelOptions& options,
                                         std::size_t index) {
  AttentionParts its;
  its.rotate = rotate_first_halves;
  its.norms_at = HeadNorms::viewed;
  if (c.norms_queries) its.norm = rms_norm;
  its.norm_type = kNames.rms_norm;
  return pre_norm_layer(builder, c, options, its, [&](const Builder& layer) -> TextLayer::MLP {
    if (c.experts.are_in(index))
      return make_moe_with_shared(layer.child("mlp", "Glm4MoeMoE"), c, "Glm4MoeExperts", "Glm4MoeTopkRouter", true);
    return LlamaMLP(layer.child("mlp", kNames.mlp), c);
  });
}

DecoderParts parts(const TextConfig& config, const ModelOptions& options) {
  return parts_of(config, options, make_layer);
}

}  // namespace

namespace family {
extern const Family glm4_moe = mixture_family<read, parts>(
    kClasses, kBlocks, convert_mixture_targets, traits_with<Feature::quantization, Feature::zero3, Feature::fsdp>);
}  // namespace family

}  // namespace oometer
