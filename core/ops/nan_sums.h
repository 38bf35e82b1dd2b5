#pragma once

#include "tensor/tensor.h"

namespace oometer {

/// x.nansum() and x.nanmean(), of all elements.
Tensor nansum(const Tensor& x);
Tensor nanmean(const Tensor& x);

}  // namespace oometer
