#include "models/deepseek/family.h"

#include "config/reader.h"

/// transformers 5.23, models/glm4_moe_lite/modeling_glm4_moe_lite.py: DeepSeek-V3's classes by other names.
namespace oometer {

namespace {

constexpr DeepseekClassNames kNames{
    {"Glm4MoeLiteForCausalLM", "Glm4MoeLiteModel", "Glm4MoeLiteDecoderLayer", "Glm4MoeLiteAttention", "Glm4MoeLiteMLP",
     "Glm4MoeLiteRMSNorm", "Glm4MoeLiteRotaryEmbedding"},
    "Glm4MoeLiteMoE",
    "Glm4MoeLiteExperts",
    "Glm4MoeLiteTopkRouter",
    {.is_v3 = true, .has_layer_types = true, .biases_float32 = true}};
constexpr ModelClass kClasses[] = {{"glm4_moe_lite", kNames.causal_lm}};
constexpr const char* kBlocks[] = {kNames.decoder_layer};

FamilyConfig read(ConfigReader& reader, const ModelClass&, Framework) {
  DeepseekConfig d;
  d.names = &kNames;
  d.vocab_size = 154'880;
  d.hidden_size = 2048;
  d.intermediate_size = 10'240;
  d.moe_intermediate_size = 1536;
  d.num_hidden_layers = 47;
  d.num_attention_heads = 20;
  d.n_shared_experts = 1;
  d.q_lora_rank = 768;
  d.v_head_dim = 256;
  d.qk_nope_head_dim = 192;
  d.num_experts_per_tok = 4;
  d.first_k_dense_replace = 1;  // of mlp_layer_types
  d.max_position_embeddings = 202'752;
  if (reader.number("partial_rotary_factor", 1, 0, 1) != 1)
    reader.fail_found("partial_rotary_factor", "not-modelled", "this is not supported yet: expected 1");
  return read_deepseek_config(reader, d);
}

}  // namespace

namespace family {
extern const Family glm4_moe_lite = deepseek_family<read>(kClasses, kBlocks);
}  // namespace family

}  // namespace oometer
