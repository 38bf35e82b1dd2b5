#include "models/llama/family.h"

#include "models/mistral/config.h"

namespace oometer {

namespace {

constexpr ModelClass kClasses[] = {{"mistral", "MistralForCausalLM"},
                                   {"mistral", "MistralForSequenceClassification"},
                                   {"mistral", "MistralForTokenClassification"},
                                   {"mistral", "MistralForQuestionAnswering"}};
constexpr const char* kBlocks[] = {kMistralClassNames.decoder_layer};

ModelTraits traits(const FamilyConfig& config) {
  ModelTraits t = traits_of_llama_family(config);
  t.oldest_transformers = oldest_with_llama_code(t, {4, 48, 0});  // recorded: 4.48.3, 4.51.3, 4.57.1
  t.liger.ignores.cross_entropy =
      true;  // modeling_mistral.py of transformers 5 has no CrossEntropyLoss that it could replace
  return t;
}

}  // namespace

namespace family {
extern const Family mistral = llama_family<read_mistral_config>(kClasses, kBlocks, traits);
}  // namespace family

}  // namespace oometer
