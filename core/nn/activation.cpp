#include "nn/activation.h"

#include "ops/ops.h"

namespace oometer {

namespace {

// QuickGELUActivation: input * torch.sigmoid(1.702 * input)
Tensor quick_gelu(const Tensor& x) {
  Tensor gate = mul_scalar(x);
  gate = sigmoid(gate);
  return mul(x, gate);
}

// NewGELUActivation: 0.5 * input * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (input + 0.044715 *
// torch.pow(input, 3.0))))
Tensor gelu_new(const Tensor& x) {
  const Tensor half = mul_scalar(x);
  Tensor inner = pow(x, 3);
  inner = mul_scalar(inner);
  inner = add(x, inner);
  inner = mul_scalar(inner);
  inner = tanh(inner);
  inner = add_scalar(inner);
  return mul(half, inner);
}

}  // namespace

namespace {

Tensor forward(Activation activation, const Tensor& x) {
  switch (activation) {
    case Activation::silu:
      return silu(x);
    case Activation::gelu:
    case Activation::gelu_tanh:
      return gelu(x);
    case Activation::gelu_new:
      return gelu_new(x);
    case Activation::quick_gelu:
      return quick_gelu(x);
    case Activation::relu:
      return relu(x);
    case Activation::relu2: {
      const Tensor relu_applied = relu(x);
      return pow(relu_applied, 2);
    }
    case Activation::tanh:
      return tanh(x);
    case Activation::sigmoid:
      break;
  }
  return sigmoid(x);
}

}  // namespace

Tensor activate(Activation activation, const Tensor& x) {
  ModuleCall call(x.context(), kNever);
  return call.result(forward(activation, call.argument(x)));
}

}  // namespace oometer
