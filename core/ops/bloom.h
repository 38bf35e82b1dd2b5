#pragma once

#include "tensor/tensor.h"

/// Operators of BLOOM that other models do without.
namespace oometer {

/// input.baddbmm(batch1, batch2, beta, alpha), of an input [n, 1, m] or [n, k, m] that wants no gradient. `scales`:
/// alpha is not 1.
Tensor baddbmm(const Tensor& input, const Tensor& batch1, const Tensor& batch2, bool scales = true);
/// GeLUFunction (transformers 5.23, models/bloom/modeling_bloom.py): a backward of its own.
Tensor bloom_gelu(const Tensor& x);

}  // namespace oometer
