#pragma once

#include <cstdint>

#include "tensor/tensor.h"

namespace oometer {

/// x[mask] = value: one row for all that are masked, `selected` of them.
Tensor put_row_in_place(const Tensor& x, const Tensor& mask, const Tensor& value, std::int64_t selected);

}  // namespace oometer
