#pragma once

#include "models/kit/decoder.h"
#include "models/kit/text_config.h"

/// transformers 5.23, models/gemma3/modeling_gemma3.py: Gemma3TextModel, which Gemma3ForConditionalGeneration has, too.
namespace oometer {

class ConfigReader;

TextConfig read_gemma3_text_config(ConfigReader& reader);
DecoderParts gemma3_text_parts(const TextConfig& config, const ModelOptions& options);

}  // namespace oometer
