#pragma once

#include "models/kit/text_family.h"

/// transformers 5.23, models/granite_swa/modeling_granite_swa.py: what the family with experts has, too.
namespace oometer {

/// sliding_window, layer_types and layer_rope_theta.
void read_granite_swa_layers(ConfigReader& reader, TextConfig& config);

/// GraniteSWAAttention.
TextAttention granite_swa_attention(const Builder& builder, const TextConfig& config, const ModelOptions& options,
                                    std::size_t layer);

/// What the decoder has beside its layers.
void complete_granite_swa(DecoderParts& parts, const TextConfig& config);

ModelTraits granite_swa_traits(const FamilyConfig& config);

}  // namespace oometer
