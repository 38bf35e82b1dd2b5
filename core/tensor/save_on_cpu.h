#pragma once

#include "tensor/tensor.h"

/// torch.autograd.graph.save_on_cpu (2.15): the hooks that Context::saves_on stands for.
namespace oometer {

/// The tensor in host memory: one without memory on the device, counted in Context::saved_on_host.
Tensor pack_to_cpu(const Tensor& tensor);
/// A new tensor on the device.
Tensor unpack_from_cpu(const Tensor& packed);

}  // namespace oometer
