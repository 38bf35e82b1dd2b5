#include "models/deepseek/family.h"

#include "config/reader.h"

/// transformers 5.23, models/youtu/modeling_youtu.py: DeepSeek-V3's attention, and Llama's MLP in each layer.
namespace oometer {

namespace {

constexpr DeepseekClassNames kNames{{"YoutuForCausalLM", "YoutuModel", "YoutuDecoderLayer", "YoutuAttention",
                                     "YoutuMLP", "YoutuRMSNorm", "YoutuRotaryEmbedding"},
                                    "",
                                    "",
                                    "",
                                    {.is_v3 = true}};
constexpr ModelClass kClasses[] = {{"youtu", kNames.causal_lm}};
constexpr const char* kBlocks[] = {kNames.decoder_layer};

FamilyConfig read(ConfigReader& reader, const ModelClass&, Framework) {
  DeepseekConfig d = deepseek_v3_defaults();
  d.names = &kNames;
  d.vocab_size = 128'256;
  d.hidden_size = 2048;
  d.intermediate_size = 6144;
  d.num_hidden_layers = 32;
  d.num_attention_heads = 16;
  d.max_position_embeddings = 131'072;
  DeepseekConfig c = read_deepseek_config(reader, d);
  if (!reader.has("tie_word_embeddings")) c.tie_word_embeddings = true;
  c.first_k_dense_replace = c.num_hidden_layers;
  c.n_routed_experts = c.n_shared_experts = c.num_experts_per_tok = 0;
  return c;
}

ModelTraits traits(const FamilyConfig& config) {
  ModelTraits t = deepseek_traits(config);
  t.has_experts = false;
  t.refuse(Feature::mtla, "not-modelled", "this is not supported yet with " + t.class_name);
  return t;
}

}  // namespace

namespace family {
extern const Family youtu = deepseek_family<read>(kClasses, kBlocks, nullptr, traits);
}  // namespace family

}  // namespace oometer
