#pragma once

#include "ops/ops.h"

namespace oometer {

/// What an operator makes of ids, positions or lengths: int64, for which no gradient asks.
inline Tensor integers(Context& context, Op op, const Shape& sizes) { return empty(context, op, sizes, DType::int64); }

}  // namespace oometer
