#pragma once

#include "models/llama/config.h"

namespace oometer {

/// The config of a language model inside another model, of the class that its model_type says; llama where it says
/// none.
LlamaConfig read_language_config(ConfigReader& reader);

}  // namespace oometer
