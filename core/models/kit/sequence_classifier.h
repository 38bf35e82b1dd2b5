#pragma once

#include <memory>

#include "models/kit/decoder.h"

namespace oometer {

/// GenericForSequenceClassification (transformers 5.23, modeling_layers.py): a decoder, and a head without bias that
/// scores the last token of each sequence. Its labels are [b], of several at once [b, num_labels].
std::unique_ptr<Model> make_sequence_classifier(Context& context, const LlamaConfig& config, const DataConfig& data,
                                                const ModelOptions& options, DecoderParts parts);

}  // namespace oometer
