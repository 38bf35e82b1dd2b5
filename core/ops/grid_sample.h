#pragma once

#include "tensor/tensor.h"

namespace oometer {

/// F.grid_sample, which the log calls an upsampling: x [n, c, h, w], grid [n, rows, columns, 2] (ATen 2.15,
/// native/cuda/GridSampler.cu; the last number of a place is its row).
Tensor grid_sample(const Tensor& x, const Tensor& grid);

}  // namespace oometer
