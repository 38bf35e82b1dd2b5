#pragma once

#include "generation/config.h"
#include "tensor/tensor.h"
#include "tensor/tensor_list.h"

/// Group-wise quantisation of keys or values, as the libraries behind QuantizedCache do it.
namespace oometer {

/// Keys or values [b, heads, s, d], packed.
struct QuantizedStates {
  TensorList tensors;  ///< packed integers, scales, shifts
  Shape sizes{};       ///< of what they stand for
};

/// `states`: contiguous. `axis`: axis_key or axis_value.
QuantizedStates quantize(const CacheConfig& config, std::int64_t axis, const Tensor& states);
Tensor dequantize(const CacheConfig& config, std::int64_t axis, const QuantizedStates& states, DType dtype);

}  // namespace oometer
