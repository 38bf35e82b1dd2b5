#pragma once

#include "models/kit/text_family.h"

/// transformers 5.23, models/gpt2; GPTBigCode is a copy with fewer heads of keys and values.
namespace oometer {

/// What both configs say, by the names of their attribute_map; as many heads of keys and values as of queries.
TextConfig read_gpt2_config(ConfigReader& reader, const LlamaClassNames& names, Activation usual_activation);
ModelTraits gpt2_traits(const FamilyConfig& config);

}  // namespace oometer
