#pragma once

#include "models/kit/text_family.h"

/// transformers 5.23, models/exaone4/modeling_exaone4.py, also inside another model.
namespace oometer {

/// class Exaone4Config.
TextConfig read_exaone4_config(ConfigReader& reader);
/// What Exaone4Model has of its own.
DecoderParts exaone4_text_parts(const TextConfig& config, const ModelOptions& options);

}  // namespace oometer
