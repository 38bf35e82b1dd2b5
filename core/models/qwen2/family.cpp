#include "models/llama/family.h"

#include "models/qwen2/config.h"

namespace oometer {

namespace {

constexpr ModelClass kClasses[] = {{"qwen2", "Qwen2ForCausalLM"},
                                   {"qwen2", "Qwen2ForSequenceClassification"},
                                   {"qwen2", "Qwen2ForTokenClassification"},
                                   {"qwen2", "Qwen2ForQuestionAnswering"}};
constexpr const char* kBlocks[] = {kQwen2ClassNames.decoder_layer};

ModelTraits traits(const FamilyConfig& config) {
  ModelTraits t = traits_of_llama_family(config);
  t.oldest_transformers = oldest_with_llama_code(t, {4, 46, 0});  // recorded: 4.46.3 to 4.57.1
  t.ia3_targets = {"q_proj", "v_proj", "down_proj"};
  t.ln_tuning_targets = {"post_attention_layernorm"};
  return t;
}

}  // namespace

namespace family {
extern const Family qwen2 = llama_family<read_qwen2_config>(kClasses, kBlocks, traits);
}  // namespace family

}  // namespace oometer
