#pragma once

#include "tensor/tensor.h"

namespace oometer::autograd {

/// Tensor.backward(): runs the graph from `root`, in the engine's order. `gradient` null: ones_like(root).
void backward(const Tensor& root, Tensor gradient = {});

}  // namespace oometer::autograd
