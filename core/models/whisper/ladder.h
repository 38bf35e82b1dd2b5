#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "models/whisper/whisper.h"

/// Ladder Side Tuning (arXiv 2206.06522): a small network beside a frozen one, which takes the states behind each of
/// its layers and alone makes the result. Made from our own PyTorch model of the paper, tools/lst.py.
namespace oometer {

inline constexpr const char* kLadderAssumption =
    "Ladder Side Tuning is as in a PyTorch model of our own of the paper (tools/lst.py), with which it was compared: "
    "the authors' code is of T5 and BART, whose side network and gates it takes for Whisper's encoder and decoder";

/// The share that one network's states have where another's are mixed in, a trained number.
struct LadderGate {
  LadderGate() = default;
  LadderGate(const Builder& builder, const char* name);
  /// gate * states + (1 - gate) * others
  Tensor operator()(const Tensor& states, const std::function<Tensor()>& others) const;

  Tensor parameter;  ///< null: they are added
};

/// The side network of one stack.
struct SideNetwork {
  SideNetwork(const Builder& builder, const WhisperConfig& c, const ModelOptions& options, bool is_decoder);
  /// What the first layer takes; `states` are the side network's from here on.
  void begin(const Tensor& hidden_states, Tensor& states) const;
  /// Behind the backbone's layer i, which gave `hidden_states`. `encoder_states`: the side network's, of a decoder.
  void step(std::size_t i, const Tensor& hidden_states, const Tensor& mask, const Tensor& encoder_states,
            Tensor& states) const;

  std::vector<std::optional<WhisperLayer>> block;  ///< one for each of the backbone's layers, or none
  Linear first_downsample;
  std::vector<Linear> downsamples;
  std::vector<LadderGate> gates;
  LayerNorm final_layer_norm;
  double hidden_dropout;
  ModuleId module;
};

}  // namespace oometer
