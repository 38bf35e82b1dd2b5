#include "models/granite/granite.h"
#include "models/kit/text_family.h"

namespace oometer {

namespace {

constexpr ModelClass kClasses[] = {{"granite", kGraniteNames.causal_lm}};
constexpr const char* kBlocks[] = {kGraniteNames.decoder_layer};

ModelTraits traits(const FamilyConfig& config) {
  ModelTraits t = traits_with<Feature::quantization, Feature::zero3, Feature::fsdp, Feature::liger>(config);
  t.liger.usual.cross_entropy = t.liger.lacks.fused_linear_cross_entropy = true;  // which has no scale of logits
  t.liger.usual.fused_linear_cross_entropy = false;
  return t;
}

}  // namespace

namespace family {
extern const Family granite = text_family<read_granite_config, granite_parts>(kClasses, kBlocks, traits);
}  // namespace family

}  // namespace oometer
