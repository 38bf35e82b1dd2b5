#pragma once

#include "ops/experts.h"

namespace oometer {

/// x.topk(k, dim=1) of a matrix of float32, of rows of any length, which autograd does not follow.
TopK topk_of_rows(const Tensor& x, std::int64_t k);

}  // namespace oometer
