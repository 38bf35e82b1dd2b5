#pragma once

#include <vector>

#include "nn/module.h"

namespace oometer {

/// `model.to("cuda")` of a model whose weights were made on the host: nn.Module._apply goes through the children first,
/// then through a module's own parameters, then its buffers. A parameter that two modules have is moved once.
/// `buffers`: in the order of the modules that they were made for.
void move_to_device(Context& context, const std::vector<Parameter>& parameters, const std::vector<Buffer>& buffers);

/// Memory on the device: not in host memory, and not freed.
inline bool has_memory(const Tensor& tensor) { return tensor->storage->id != kNever; }

}  // namespace oometer
