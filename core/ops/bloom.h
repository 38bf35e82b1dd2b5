#pragma once

#include "tensor/tensor.h"

/// Operators of BLOOM that other models do without.
namespace oometer {

/// GeLUFunction (transformers 5.23, models/bloom/modeling_bloom.py): a backward of its own.
Tensor bloom_gelu(const Tensor& x);

}  // namespace oometer
