#pragma once

#include <cstddef>
#include <memory>

#include "models/kit/decoder_layer.h"
#include "models/kit/text_config.h"
#include "models/model.h"

/// What other classes have of Phi-3's (transformers 5.23, models/phi3/modeling_phi3.py).
namespace oometer {

/// The fields of a text part of Phi-3's kind; `defaults`: the class's own.
TextConfig read_phi3_sizes(ConfigReader& reader, const TextConfig& defaults);
/// Phi3DecoderLayer, its classes called as `config.names` says.
std::unique_ptr<DecoderLayer> make_phi3_layer(const Builder& builder, const TextConfig& config,
                                              const ModelOptions& options, std::size_t index);

}  // namespace oometer
