#include "models/kit/recurrent.h"

namespace oometer {

ModelTraits recurrent_traits(const TextConfig& config) {
  ModelTraits t = text_traits(config);
  t.has_no_peft_targets();
  t.generates = false;
  t.refuse(Feature::inference, "not-modelled", "inference is not supported yet with " + t.class_name);
  return t;
}

ModelTraits traits_of_recurrent_family(const FamilyConfig& config) { return recurrent_traits(config.as<TextConfig>()); }

ModelTraits traits_of_generating_family(const FamilyConfig& config) {
  ModelTraits t = traits_of_text_family(config);
  t.refuse(Feature::generate_options, "not-modelled",
           "only one answer with the usual cache is supported yet with " + t.class_name);
  return t;
}

}  // namespace oometer
