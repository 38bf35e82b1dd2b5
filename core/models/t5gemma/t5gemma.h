#pragma once

#include <cstdint>
#include <memory>

#include "models/kit/encoder.h"
#include "models/kit/text_config.h"

/// transformers 5.23, models/t5gemma/modeling_t5gemma.py: an encoder and a decoder of Gemma 2's layers. Names and order
/// of steps are that file's.
namespace oometer {

/// class T5GemmaConfig: the fields that decide memory. What EncoderConfig says is the decoder's, whose head it is.
struct T5GemmaConfig : EncoderConfig {
  TextConfig encoder, decoder;
  double dropout_rate = 0;

  bool operator==(const T5GemmaConfig&) const = default;
};

std::unique_ptr<Model> build_t5gemma(Context& context, const T5GemmaConfig& config, const DataConfig& data,
                                     const ModelOptions& options);

}  // namespace oometer
