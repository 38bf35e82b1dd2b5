#pragma once

#include "models/gemma4_text/config.h"
#include "models/kit/decoder.h"

/// transformers 5.23, models/gemma4/modeling_gemma4.py: Gemma4TextModel, which Gemma4ForConditionalGeneration has, too.
namespace oometer {

inline constexpr LlamaClassNames kGemma4Names{"Gemma4ForCausalLM",        "Gemma4TextModel", "Gemma4TextDecoderLayer",
                                              "Gemma4TextAttention",      "Gemma4TextMLP",   "Gemma4RMSNorm",
                                              "Gemma4TextRotaryEmbedding"};

/// models/gemma4_unified/modeling_gemma4_unified.py: the same without experts and embeddings of each layer.
inline constexpr LlamaClassNames kGemma4UnifiedNames{
    "Gemma4UnifiedForCausalLM",        "Gemma4UnifiedTextModel", "Gemma4UnifiedTextDecoderLayer",
    "Gemma4UnifiedTextAttention",      "Gemma4UnifiedTextMLP",   "Gemma4UnifiedRMSNorm",
    "Gemma4UnifiedTextRotaryEmbedding"};

/// Liger's kernels, as apply_liger_kernel_to_gemma4_text puts them in.
void allow_gemma4_liger(ModelTraits& traits, const Gemma4TextConfig& config);
DecoderParts gemma4_text_parts(const Gemma4TextConfig& config, const ModelOptions& options);

/// Bytes of about the largest tensor.
double largest_tensor_of_gemma4_text(const Gemma4TextConfig& config, const DataConfig& data);

}  // namespace oometer
