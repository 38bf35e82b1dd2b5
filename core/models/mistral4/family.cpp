#include "models/deepseek/family.h"

#include "config/reader.h"
#include "models/llama/family.h"

/// transformers 5.23, models/mistral4/modeling_mistral4.py: DeepSeek-V3's classes with a router of probabilities and
/// queries that are scaled with their positions.
namespace oometer {

namespace {

constexpr DeepseekClassNames kNames{{"Mistral4ForCausalLM", "Mistral4Model", "Mistral4DecoderLayer",
                                     "Mistral4Attention", "Mistral4MLP", "Mistral4RMSNorm", "Mistral4RotaryEmbedding"},
                                    "Mistral4MoE",
                                    "Mistral4Experts",
                                    "Mistral4TopkRouter",
                                    {.is_v3 = true, .has_softmax = true, .scales_queries = true}};
constexpr ModelClass kClasses[] = {{"mistral4", kNames.causal_lm},
                                   {"mistral4", "Mistral4ForSequenceClassification"},
                                   {"mistral4", "Mistral4ForTokenClassification"}};
constexpr const char* kBlocks[] = {kNames.decoder_layer};

FamilyConfig read(ConfigReader& reader, const ModelClass& of, Framework) {
  DeepseekConfig d;
  d.names = &kNames;
  d.vocab_size = 131'072;
  d.intermediate_size = 12'288;
  d.moe_intermediate_size = 2048;
  d.num_hidden_layers = 36;
  d.n_shared_experts = 1;
  d.n_routed_experts = reader.integer("num_local_experts", 128);  // attribute_map
  d.kv_lora_rank = 256;
  d.q_lora_rank = 1024;
  d.qk_nope_head_dim = 64;
  d.num_experts_per_tok = 4;
  d.max_position_embeddings = 1'048'576;
  d.has_pad_token = true;
  if (reader.is_object("rope_parameters") && !reader.object("rope_parameters").has("llama_4_scaling_beta"))
    reader.fail("rope_parameters", "inconsistent", "found no llama_4_scaling_beta, with which queries are scaled");
  DeepseekConfig c = read_deepseek_config(reader, d);
  c.classifier = read_classifier(reader, of);
  return c;
}

}  // namespace

namespace family {
extern const Family mistral4 = deepseek_family<read>(kClasses, kBlocks, nullptr);
}  // namespace family

}  // namespace oometer
