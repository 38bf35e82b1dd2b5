#include "config/reader.h"
#include "models/kit/mixture.h"
#include "models/qwen3_5/qwen3_5.h"
#include "models/qwen3_vl/config.h"

/// transformers 5.23, models/qwen3_5_moe/modeling_qwen3_5_moe.py: the language model.
namespace oometer {

namespace {

constexpr LlamaClassNames kNames{"Qwen3_5MoeForCausalLM",        "Qwen3_5MoeTextModel", "Qwen3_5MoeDecoderLayer",
                                 "Qwen3_5MoeAttention",          "Qwen3_5MoeMLP",       "Qwen3_5MoeRMSNorm",
                                 "Qwen3_5MoeTextRotaryEmbedding"};
constexpr GatedLayerNames kParts{"Qwen3_5MoeGatedDeltaNet", "Qwen3_5MoeRMSNormGated", false, "Qwen3_5MoeSparseMoeBlock",
                                 "Qwen3_5MoeTopKRouter",    "Qwen3_5MoeExperts",      true};
constexpr ModelClass kClasses[] = {{"qwen3_5_moe_text", kNames.causal_lm}};
constexpr const char* kBlocks[] = {kNames.decoder_layer};

TextConfig read(ConfigReader& reader) {
  TextConfig d;
  d.names = &kNames;
  d.vocab_size = 248320;
  d.hidden_size = 2048;
  d.num_hidden_layers = 40;
  d.num_attention_heads = 16;
  d.num_key_value_heads = 2;
  d.max_position_embeddings = 32768;
  reader.ignore({"mlp_only_layers"});  // Qwen3-Next's, which modular_qwen3_5_moe.py takes out
  TextConfig c = read_gated_text(reader, d);
  read_experts(reader, c, "num_experts", "num_local_experts",
               {.num_experts = 256, .num_experts_per_tok = 8, .balances = true});
  c.experts.intermediate_size = reader.integer("moe_intermediate_size", 512);
  c.experts.shared_intermediate_size = reader.integer("shared_expert_intermediate_size", 512);
  c.experts.norm_topk_prob = true;
  return c;
}

DecoderParts parts(const TextConfig& config, const ModelOptions& options) {
  return parts_like_qwen3_5(config, options, kParts);
}

ModelTraits traits(const FamilyConfig& config) {
  ModelTraits t = generating_traits_with<Feature::quantization, Feature::zero3, Feature::fsdp>(config);
  t.stop_at_liger(t.kNoLigerOutputs);
  return t;
}

}  // namespace

constexpr Qwen3VLClass kQwen35Moe{"qwen3_5_moe",
                                  "Qwen3_5MoeForConditionalGeneration",
                                  "Qwen3_5MoeModel",
                                  "Qwen3_5MoeVisionModel",
                                  "Qwen3_5MoeVisionPatchEmbed",
                                  "Qwen3_5MoeVisionRotaryEmbedding",
                                  "Qwen3_5MoeVisionBlock",
                                  "Qwen3_5MoeVisionAttention",
                                  "Qwen3_5MoeVisionMLP",
                                  "Qwen3_5MoeVisionPatchMerger",
                                  false,
                                  read,
                                  balanced<parts>};

namespace family {
extern const Family qwen3_5_moe = text_family<read, balanced<parts>>(kClasses, kBlocks, traits);
}  // namespace family

}  // namespace oometer
