#include "models/llama/family.h"

#include "models/mistral/config.h"

namespace oometer {

namespace {

constexpr ModelClass kClasses[] = {{"mistral", "MistralForCausalLM"}};
constexpr const char* kBlocks[] = {kMistralClassNames.decoder_layer};

ModelTraits traits(const FamilyConfig& config) {
  ModelTraits t = traits_of_llama_family(config);
  // Llama's code of that version (recorded: 4.48.3, 4.51.3, 4.57.1), but for a window's mask, which is
  // masking_utils.py's since 4.53.
  t.oldest_transformers = t.text.sliding_window == 0 ? Version{4, 48, 0} : Version{4, 53, 0};
  t.liger.cross_entropy = false;  // modeling_mistral.py of transformers 5 has no CrossEntropyLoss that it could replace
  return t;
}

}  // namespace

namespace family {
extern const Family mistral = llama_family<read_mistral_config>(kClasses, kBlocks, traits);
}  // namespace family

}  // namespace oometer
