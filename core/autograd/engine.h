#pragma once

#include "tensor/tensor.h"

namespace oometer::autograd {

/// Tensor.backward(): runs the graph from `root`, in the engine's order. `gradient` null: ones_like(root).
/// `retain_graph`: nodes keep what they saved, until the graph goes.
void backward(const Tensor& root, Tensor gradient = {}, bool retain_graph = false);

}  // namespace oometer::autograd
