#pragma once

#include "tensor/tensor.h"

namespace oometer {

/// The kernel of index_put_ with accumulation: adds the rows of `grad` to those of `zeros` that they were taken from.
/// It touches no more of them than `grad` has.
void accumulate_rows(const Tensor& grad, const Tensor& zeros);

}  // namespace oometer
