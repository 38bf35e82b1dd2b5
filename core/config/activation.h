#pragma once

#include <cstdint>

namespace oometer {

/// Activation functions by what they allocate and save, not by formula: names of `ACT2CLS` (transformers 5.23,
/// activations.py) that run the same operators share one value ("swish" and "silu" are both `F.silu`).
enum class Activation : std::uint8_t {
  silu,        ///< "silu", "swish": F.silu
  gelu,        ///< "gelu": F.gelu (erf)
  gelu_tanh,   ///< "gelu_pytorch_tanh": F.gelu(approximate="tanh")
  gelu_new,    ///< "gelu_new": 0.5 * x * (1 + tanh(sqrt(2/pi) * (x + 0.044715 * pow(x, 3)))), operator by operator
  quick_gelu,  ///< "quick_gelu": x * sigmoid(1.702 * x), operator by operator
  relu,        ///< "relu": nn.ReLU
  relu2,       ///< "relu2": torch.square(relu(x))
  tanh,        ///< "tanh": nn.Tanh
  sigmoid,     ///< "sigmoid": nn.Sigmoid
};

}  // namespace oometer
