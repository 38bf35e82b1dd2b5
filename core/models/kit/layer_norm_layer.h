#pragma once

#include <memory>

#include "models/kit/text_layer.h"

namespace oometer {

/// Starcoder2DecoderLayer.__init__, which is Jais2DecoderLayer's: Llama's layer with LayerNorm and an MLP without a
/// gate, whose layers have these names.
std::unique_ptr<TextLayer> layer_norm_layer(const Builder& builder, const TextConfig& config,
                                            const ModelOptions& options, const char* up, const char* down);

}  // namespace oometer
