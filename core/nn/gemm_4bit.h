#pragma once

#include <cstdint>

#include "tensor/context.h"
#include "trace/dtype.h"

namespace oometer {

/// Whether bitsandbytes 0.50.2 multiplies [m, k] with a weight of 4 bits, [n, k], in one kernel of its own, which makes
/// no copy of the weight (backends/cuda/ops.py, bitsandbytes::gemm_4bit and _gemm_4bit_use_custom_cuda: measured on
/// each architecture).
bool multiplies_in_4bit(const Device& device, DType dtype, std::int64_t m, std::int64_t n, std::int64_t k);

}  // namespace oometer
