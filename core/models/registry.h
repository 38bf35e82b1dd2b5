#pragma once

#include "models/family.h"

namespace oometer {

/// Reads a whole config.json. An unknown model_type or class is an error that lists those supported.
ModelConfig read_model_config(ConfigReader& reader, Framework framework);

/// What AutoModelForSequenceClassification makes of a model_type; empty: nothing that is supported.
std::string_view sequence_classifier_of(std::string_view model_type);

/// The config of a language model inside another model, of the class that its model_type says; llama where it says
/// none.
LlamaConfig read_language_config(ConfigReader& reader);

}  // namespace oometer
