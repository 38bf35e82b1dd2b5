#pragma once

#include <memory>

#include "models/kit/decoder.h"
#include "models/model.h"
#include "models/muse_glimmer/config.h"

/// transformers 5.23, models/muse_glimmer/modeling_muse_glimmer.py.
namespace oometer {

inline constexpr LlamaClassNames kMuseGlimmerNames{"MuseGlimmerForConditionalGeneration",
                                                   "MuseGlimmerTextModel",
                                                   "MuseGlimmerTextDecoderLayer",
                                                   "MuseGlimmerTextAttention",
                                                   "MuseGlimmerTextMLP",
                                                   "MuseGlimmerRMSNorm",
                                                   "MuseGlimmerTextRotaryEmbedding"};
inline constexpr const char* kMuseGlimmerVisionLayer = "MuseGlimmerVisionEncoderLayer";

/// MuseGlimmerForConditionalGeneration.
std::unique_ptr<Model> build_muse_glimmer(Context& context, const MuseGlimmerConfig& config, const DataConfig& data,
                                          const ModelOptions& options);
/// What MuseGlimmerTextModel has of its own, beside the norm of its embeddings.
DecoderParts muse_glimmer_text_parts(const TextConfig& config, const ModelOptions& options);

}  // namespace oometer
