#pragma once

#include <initializer_list>

#include "ops/ops.h"

namespace oometer {

/// The products of unfolded samples, one after another: each takes a workspace.
inline void multiply_each(Context& context, std::int64_t samples) {
  for (std::int64_t i = 0; i < samples; ++i) const GemmWorkspace workspace(context);
}

/// One of the three products of a convolution of x to y: y, x's gradient or the weight's, which is `written`.
/// FlopCounterMode counts a weight's gradient as if each of x's channels met each of y's, whatever the groups.
void convolution_kernel(Op op, const Shape& x, const Shape& y, const Shape& weight, bool transposed,
                        std::initializer_list<const Tensor*> read, const Tensor& written);

}  // namespace oometer
