#include "models/llama/family.h"

#include "models/olmo2/config.h"
#include "models/olmo2/olmo2.h"

namespace oometer {

namespace {

constexpr ModelClass kClasses[] = {{"olmo2", kOlmo2ClassNames.causal_lm}};
constexpr const char* kBlocks[] = {kOlmo2ClassNames.decoder_layer};

FamilyConfig read(ConfigReader& reader, const ModelClass&, Framework) { return read_olmo2_config(reader); }

std::unique_ptr<Model> build(Context& context, const FamilyConfig& config, const DataConfig& data,
                             const ModelOptions& options) {
  return build_olmo2(context, config.as<LlamaConfig>(), data, options);
}

ModelTraits traits(const FamilyConfig& config) {
  ModelTraits t = traits_of_llama_family(config);
  t.oldest_transformers = {5, 23, 0};
  t.lora_targets = t.ia3_targets = t.ia3_feedforward = t.ln_tuning_targets = {};  // peft does not know it
  // Not compared with the real libraries yet.
  for (const Feature feature : {Feature::liger, Feature::quantization, Feature::zero3, Feature::fsdp,
                                Feature::headinfer, Feature::quantized_cache})
    t.refuse(feature, "not-modelled", "this is not supported yet with " + t.class_name);
  return t;
}

}  // namespace

namespace family {
extern const Family olmo2{.classes = kClasses,
                          .blocks = kBlocks,
                          .read = read,
                          .build = build,
                          .traits = traits,
                          .largest_tensor = largest_tensor_of_llama_family};
}  // namespace family

}  // namespace oometer
