#pragma once

#include "models/kit/decoder.h"
#include "models/kit/text_config.h"

/// transformers 5.23, models/gemma2/modeling_gemma2.py: Gemma2Model, which PaliGemma has, too.
namespace oometer {

class ConfigReader;

TextConfig read_gemma2_config(ConfigReader& reader);
DecoderParts gemma2_parts(const TextConfig& config, const ModelOptions& options);

}  // namespace oometer
