#include <string_view>

#include "models/gemma4_text/gemma4_text.h"
#include "models/kit/text_family.h"

/// transformers 5.23, models/gemma4/modeling_gemma4.py.
namespace oometer {

namespace {

constexpr ModelClass kClasses[] = {{"gemma4_text", kGemma4Names.causal_lm},
                                   {"gemma4_unified_text", kGemma4UnifiedNames.causal_lm}};
constexpr const char* kBlocks[] = {kGemma4Names.decoder_layer, kGemma4UnifiedNames.decoder_layer};

FamilyConfig read(ConfigReader& reader, const ModelClass& of, Framework) {
  return std::string_view(of.class_name) == kGemma4UnifiedNames.causal_lm ? read_gemma4_unified_text_config(reader)
                                                                          : read_gemma4_text_config(reader);
}

std::unique_ptr<Model> build(Context& context, const FamilyConfig& config, const DataConfig& data,
                             const ModelOptions& options) {
  const auto& text = config.as<Gemma4TextConfig>();
  return make_language_model(context, text, data, options, gemma4_text_parts(text, options));
}

ModelTraits traits(const FamilyConfig& config) {
  const auto& c = config.as<Gemma4TextConfig>();
  ModelTraits t = text_traits(c);
  t.has_no_peft_targets();
  t.allow({Feature::quantization, Feature::fsdp, Feature::zero3});
  if (c.names == &kGemma4Names) allow_gemma4_liger(t, c);
  return t;
}

double largest_tensor(const FamilyConfig& config, const DataConfig& data) {
  return largest_tensor_of_gemma4_text(config.as<Gemma4TextConfig>(), data);
}

}  // namespace

namespace family {
extern const Family gemma4_text{.classes = kClasses,
                                .blocks = kBlocks,
                                .read = read,
                                .build = build,
                                .traits = traits,
                                .largest_tensor = largest_tensor};
}  // namespace family

}  // namespace oometer
