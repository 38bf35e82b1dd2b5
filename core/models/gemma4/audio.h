#pragma once

#include "models/gemma4/config.h"
#include "nn/module.h"

namespace oometer {

/// Gemma4AudioModel: its modules, which no batch without sound calls.
void make_gemma4_audio(const Builder& builder, const Gemma4AudioConfig& config);

}  // namespace oometer
