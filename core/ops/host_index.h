#pragma once

#include <cstdint>

#include "tensor/tensor.h"

namespace oometer {

struct HostRowsAndColumns {};

/// x[rows, columns] with `count` of each in host memory: each use of them copies them to the device.
Tensor index_from_host(const Tensor& x, std::int64_t count, HostRowsAndColumns);
/// x[rows, columns] = values with such indices, of x that wants no gradient.
void index_put_from_host(const Tensor& x, const Tensor& values);

}  // namespace oometer
