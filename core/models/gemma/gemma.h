#pragma once

#include "models/kit/decoder.h"
#include "models/kit/text_config.h"

/// transformers 5.23, models/gemma/modeling_gemma.py: GemmaModel, which PaliGemma has, too.
namespace oometer {

class ConfigReader;

TextConfig read_gemma_config(ConfigReader& reader);
DecoderParts gemma_parts(const TextConfig& config, const ModelOptions& options);

}  // namespace oometer
