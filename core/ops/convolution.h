#pragma once

#include "ops/ops.h"

namespace oometer {

/// The products of unfolded samples, one after another: each takes a workspace.
inline void multiply_each(Context& context, std::int64_t samples) {
  for (std::int64_t i = 0; i < samples; ++i) const GemmWorkspace workspace(context);
}

}  // namespace oometer
