#pragma once

#include <memory>

#include "models/granite_speech/config.h"
#include "models/model.h"

namespace oometer {

/// GraniteSpeechForConditionalGeneration (transformers 5.23, models/granite_speech/modeling_granite_speech.py), and
/// GraniteSpeechPlusForConditionalGeneration, a copy of it.
std::unique_ptr<Model> build_granite_speech(Context& context, const GraniteSpeechConfig& config, const DataConfig& data,
                                            const ModelOptions& options);

}  // namespace oometer
