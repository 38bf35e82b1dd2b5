#pragma once

#include "tensor/tensor.h"

namespace oometer {

/// x[..., [i], ...] along one dimension: Python's list becomes an index tensor on the device.
Tensor index_with_list(const Tensor& x, int dim);

}  // namespace oometer
