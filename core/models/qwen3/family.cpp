#include "models/llama/family.h"

#include "models/qwen3/config.h"

namespace oometer {

namespace {

constexpr ModelClass kClasses[] = {{"qwen3", "Qwen3ForCausalLM"},
                                   {"qwen3", "Qwen3ForSequenceClassification"},
                                   {"qwen3", "Qwen3ForTokenClassification"},
                                   {"qwen3", "Qwen3ForQuestionAnswering"}};
constexpr const char* kBlocks[] = {kQwen3ClassNames.decoder_layer};

ModelTraits traits(const FamilyConfig& config) {
  ModelTraits t = traits_of_llama_family(config);
  t.oldest_transformers = oldest_with_llama_code(t, {4, 51, 0});  // recorded: 4.51.3, 4.57.1
  t.ia3_targets = {"q_proj", "v_proj", "down_proj"};
  t.ln_tuning_targets = {"post_attention_layernorm"};
  return t;
}

}  // namespace

namespace family {
extern const Family qwen3 = llama_family<read_qwen3_config>(kClasses, kBlocks, traits);
}  // namespace family

}  // namespace oometer
