#include "models/deepseek/family.h"

#include "config/reader.h"

/// transformers 5.23, models/glm_moe_dsa/modeling_glm_moe_dsa.py (GLM-5): DeepSeek-V3.2's classes; a layer may take the
/// tokens that an earlier one chose.
namespace oometer {

namespace {

constexpr DeepseekClassNames kNames{
    {"GlmMoeDsaForCausalLM", "GlmMoeDsaModel", "GlmMoeDsaDecoderLayer", "GlmMoeDsaAttention", "GlmMoeDsaMLP",
     "GlmMoeDsaRMSNorm", "GlmMoeDsaRotaryEmbedding"},
    "GlmMoeDsaMoE",
    "GlmMoeDsaExperts",
    "GlmMoeDsaTopkRouter",
    {.is_v3 = true,
     .has_layer_types = true,
     .biases_float32 = true,
     .indexer = IndexerRotary::pairs,
     .shares_topk = true},
    "GlmMoeDsaIndexer"};
constexpr ModelClass kClasses[] = {{"glm_moe_dsa", kNames.causal_lm}};
constexpr const char* kBlocks[] = {kNames.decoder_layer};

FamilyConfig read(ConfigReader& reader, const ModelClass&, Framework) {
  DeepseekConfig d = deepseek_v3_defaults();
  d.names = &kNames;
  d.vocab_size = 154'880;
  d.hidden_size = 6144;
  d.intermediate_size = 12'288;
  d.num_hidden_layers = 78;
  d.num_attention_heads = 64;
  d.q_lora_rank = 2048;
  d.v_head_dim = 256;
  d.qk_nope_head_dim = 192;
  d.n_group = d.topk_group = 1;
  d.max_position_embeddings = 202'752;
  d.index_n_heads = 32;
  return read_deepseek_config(reader, d);
}

}  // namespace

namespace family {
extern const Family glm_moe_dsa = deepseek_family<read>(kClasses, kBlocks);
}  // namespace family

}  // namespace oometer
