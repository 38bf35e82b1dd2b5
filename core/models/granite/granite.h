#pragma once

#include "models/kit/decoder.h"
#include "models/kit/text_config.h"

/// transformers 5.23, models/granite/modeling_granite.py.
namespace oometer {

inline constexpr LlamaClassNames kGraniteNames{"GraniteForCausalLM",    "GraniteModel", "GraniteDecoderLayer",
                                               "GraniteAttention",      "GraniteMLP",   "GraniteRMSNorm",
                                               "GraniteRotaryEmbedding"};

TextConfig read_granite_config(ConfigReader& reader);
DecoderParts granite_parts(const TextConfig& config, const ModelOptions& options);

}  // namespace oometer
