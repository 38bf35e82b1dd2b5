#include "models/deepseek/family.h"

#include "config/reader.h"
#include "models/llama/family.h"

/// transformers 5.23, models/axk1/modeling_axk1.py (A.X-K1): DeepSeek-V3's classes, whose experts' output is normed.
namespace oometer {

namespace {

constexpr DeepseekClassNames kNames{{"AXK1ForCausalLM", "AXK1Model", "AXK1DecoderLayer", "AXK1Attention", "AXK1MLP",
                                     "AXK1RMSNorm", "AXK1RotaryEmbedding"},
                                    "AXK1MoE",
                                    "AXK1Experts",
                                    "AXK1TopkRouter",
                                    {.is_v3 = true, .has_layer_types = true, .norms_experts = true}};
constexpr ModelClass kClasses[] = {
    {"axk1", kNames.causal_lm}, {"axk1", "AXK1ForSequenceClassification"}, {"axk1", "AXK1ForTokenClassification"}};
constexpr const char* kBlocks[] = {kNames.decoder_layer};

FamilyConfig read(ConfigReader& reader, const ModelClass& of, Framework) {
  DeepseekConfig d = deepseek_v3_defaults();
  d.names = &kNames;
  d.vocab_size = 163'840;
  d.num_attention_heads = 64;
  d.n_routed_experts = 192;
  d.max_position_embeddings = 32'768;
  d.first_k_dense_replace = reader.integer("first_k_dense_replace", 1, non_negative);  // of mlp_layer_types
  if (reader.integer("moe_layer_freq", 1) != 1)
    reader.fail_found("moe_layer_freq", "not-modelled", "this is not supported yet: expected 1");
  if (reader.is_null("q_lora_rank"))
    reader.fail("q_lora_rank", "inconsistent", "found null; this class always compresses queries: expected a number");
  DeepseekConfig c = read_deepseek_config(reader, d);
  c.classifier = read_classifier(reader, of);
  return c;
}

ModelTraits traits(const FamilyConfig& config) {
  ModelTraits t = deepseek_traits(config);
  t.refuse(Feature::mtla, "not-modelled", "this is not supported yet with " + t.class_name);
  return t;
}

}  // namespace

namespace family {
extern const Family axk1 = deepseek_family<read>(kClasses, kBlocks, nullptr, traits);
}  // namespace family

}  // namespace oometer
