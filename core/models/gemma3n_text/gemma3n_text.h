#pragma once

#include "models/gemma3n_text/config.h"
#include "models/kit/decoder.h"

/// transformers 5.23, models/gemma3n/modeling_gemma3n.py: Gemma3nTextModel.
namespace oometer {

inline constexpr LlamaClassNames kGemma3nNames{"Gemma3nForCausalLM",    "Gemma3nTextModel", "Gemma3nTextDecoderLayer",
                                               "Gemma3nTextAttention",  "Gemma3nTextMLP",   "Gemma3nRMSNorm",
                                               "Gemma3nRotaryEmbedding"};

DecoderParts gemma3n_text_parts(const Gemma3nTextConfig& config, const ModelOptions& options);

}  // namespace oometer
