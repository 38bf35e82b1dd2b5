#include "models/kit/recurrent.h"

namespace oometer {

void refuse_generate_options(ModelTraits& traits) {
  traits.refuse(Feature::generate_options, "not-modelled",
                "only one answer with the usual cache is supported yet with " + traits.class_name);
}

ModelTraits recurrent_traits(const TextConfig& config) {
  ModelTraits t = text_traits(config);
  t.has_no_peft_targets();
  refuse_generate_options(t);
  return t;
}

ModelTraits traits_of_recurrent_family(const FamilyConfig& config) { return recurrent_traits(config.as<TextConfig>()); }

ModelTraits traits_of_generating_family(const FamilyConfig& config) {
  ModelTraits t = traits_of_text_family(config);
  refuse_generate_options(t);
  return t;
}

}  // namespace oometer
