#pragma once

#include "models/family.h"

namespace oometer {

/// Reads a whole config.json. An unknown model_type or class is an error that lists those supported.
ModelConfig read_model_config(ConfigReader& reader, Framework framework);

/// The config of a language model inside another model, of the class that its model_type says; llama where it says
/// none.
LlamaConfig read_language_config(ConfigReader& reader);

}  // namespace oometer
