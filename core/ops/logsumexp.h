#pragma once

#include "tensor/tensor.h"

namespace oometer {

/// torch.logsumexp(x, dim=-1, keepdim).
Tensor logsumexp(const Tensor& x, bool keepdim);

}  // namespace oometer
