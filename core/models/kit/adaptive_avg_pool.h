#pragma once

#include <cstdint>

#include "tensor/tensor.h"

namespace oometer {

/// F.adaptive_avg_pool2d of [b, channels, h, w] to `side` values a row and a column, which keeps images laid out
/// channels last so.
Tensor adaptive_avg_pool(const Tensor& x, std::int64_t side);

}  // namespace oometer
