#pragma once

#include <utility>

#include "tensor/listeners.h"
#include "tensor/tensor.h"

namespace oometer {

/// Calls a module that is no block of a stack, but a unit of FSDP1 where its class is named (_no_split_modules names
/// embeddings and projectors).
template <typename Forward>
Tensor wrapped_call(const Tensor& x, ModuleId module, const Forward& forward) {
  BlockListener* const listener = x.context().blocks;
  if (!listener) return forward(x);
  Tensor output = forward(listener->before_block(module, x));
  return listener->after_block(module, std::move(output));
}

}  // namespace oometer
