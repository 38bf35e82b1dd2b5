#pragma once

#include <cstdint>

#include "nn/module.h"

namespace oometer {

/// What ends an encoder's attention and its MLP: a projection, dropout, and a LayerNorm of its sum with what came in
/// (BertSelfOutput and BertOutput, which differ in the width that they project from).
struct PostNormOutput {
  PostNormOutput() = default;
  PostNormOutput(const Builder& builder, std::int64_t in_features, std::int64_t hidden_size, double dropout);
  Tensor operator()(const Tensor& hidden_states, const Tensor& input_tensor) const;

  Linear dense;
  LayerNorm layer_norm;
  double hidden_dropout_prob = 0;
  ModuleId module = 0;
};

}  // namespace oometer
