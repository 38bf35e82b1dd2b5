#pragma once

#include <vector>

#include "models/whisper/whisper.h"

/// MEFT (arXiv 2306.00477): reversible layers. Of a stack the last output alone is kept; backward computes a layer's
/// inputs from its outputs. Made from our own PyTorch model of the paper, tools/meft.py.
namespace oometer {

inline constexpr const char* kMeftAssumption =
    "MEFT is as in a PyTorch model of our own of the paper (tools/meft.py), with which it was compared: the authors' "
    "code is of BERT, whose reversible layers and their backward it takes for Whisper's encoder and decoder";

/// All layers, from `hidden_states` that they get twice, to the mean of both halves of the last one's output.
/// `encoder_states`: of a decoder.
Tensor run_reversible(const std::vector<WhisperLayer>& layers, WhisperConfig::Reversible f_arch,
                      const Tensor& hidden_states, const Tensor& mask, const Tensor& encoder_states);

}  // namespace oometer
