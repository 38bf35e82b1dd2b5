#pragma once

#include <memory>

#include "models/model.h"
#include "models/vision_encoder_decoder/config.h"

namespace oometer {

/// VisionEncoderDecoderModel (transformers 5.23, models/vision_encoder_decoder/modeling_vision_encoder_decoder.py).
std::unique_ptr<Model> build_vision_encoder_decoder(Context& context, const VisionEncoderDecoderConfig& config,
                                                    const DataConfig& data, const ModelOptions& options);

}  // namespace oometer
