#pragma once

#include <memory>

#include "models/kit/decoder.h"

namespace oometer {

/// GenericForSequenceClassification or GenericForTokenClassification (transformers 5.23, modeling_layers.py), as the
/// config says: a decoder and a ClassifierHead.
std::unique_ptr<Model> make_classifier(Context& context, const LlamaConfig& config, const DataConfig& data,
                                       const ModelOptions& options, DecoderParts parts);

}  // namespace oometer
