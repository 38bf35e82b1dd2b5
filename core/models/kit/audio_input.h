#pragma once

#include "tensor/context.h"
#include "tensor/tensor.h"

namespace oometer {

/// Refuses features or a waveform of another type than the first convolution's `weight`, which fails at them outside
/// autocast ("RuntimeError: Input type ... and bias type ... should be the same").
void check_audio_input(Context& context, const Tensor& features, const Tensor& weight);

}  // namespace oometer
