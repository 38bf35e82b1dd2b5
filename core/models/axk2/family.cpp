#include "models/deepseek/family.h"

#include "config/reader.h"
#include "models/llama/family.h"

/// transformers 5.23, models/axk2/modeling_axk2.py (A.X-K2): DeepSeek-V3.2's classes with gated norms and attention.
namespace oometer {

namespace {

constexpr DeepseekClassNames kNames{{"AXK2ForCausalLM", "AXK2Model", "AXK2DecoderLayer", "AXK2Attention", "AXK2MLP",
                                     "AXK2RMSNorm", "AXK2RotaryEmbedding"},
                                    "AXK2MoE",
                                    "AXK2Experts",
                                    "AXK2TopkRouter",
                                    {.is_v3 = true,
                                     .has_layer_types = true,
                                     .biases_float32 = true,
                                     .is_gated = true,
                                     .indexer = IndexerRotary::halves},
                                    "AXK2Indexer"};
constexpr ModelClass kClasses[] = {
    {"axk2", kNames.causal_lm}, {"axk2", "AXK2ForSequenceClassification"}, {"axk2", "AXK2ForTokenClassification"}};
constexpr const char* kBlocks[] = {kNames.decoder_layer};

FamilyConfig read(ConfigReader& reader, const ModelClass& of, Framework) {
  DeepseekConfig d = deepseek_v3_defaults();
  d.names = &kNames;
  d.vocab_size = 163'840;
  d.hidden_size = 2048;
  d.intermediate_size = 5120;
  d.moe_intermediate_size = 512;
  d.num_hidden_layers = 48;
  d.num_attention_heads = 32;
  d.n_routed_experts = 128;
  d.kv_lora_rank = 128;
  d.q_lora_rank = 384;
  d.qk_rope_head_dim = 32;
  d.v_head_dim = d.qk_nope_head_dim = 64;
  d.max_position_embeddings = 131'072;
  d.index_n_heads = 16;
  d.n_group = d.topk_group = 0;
  d.first_k_dense_replace = 1;  // of mlp_layer_types
  if (reader.integer("moe_layer_freq", 1) != 1)
    reader.fail_found("moe_layer_freq", "not-modelled", "this is not supported yet: expected 1");
  if ((reader.has("n_group") && !reader.is_null("n_group")) !=
      (reader.has("topk_group") && !reader.is_null("topk_group")))
    reader.fail("n_group", "inconsistent", "expected n_group and topk_group together, or neither");
  DeepseekConfig c = read_deepseek_config(reader, d);
  c.classifier = read_classifier(reader, of);
  return c;
}

}  // namespace

namespace family {
extern const Family axk2 = deepseek_family<read>(kClasses, kBlocks, nullptr);
}  // namespace family

}  // namespace oometer
