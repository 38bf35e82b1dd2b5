#pragma once

#include <cstdint>

#include "tensor/tensor.h"

/// ALiBi: what stands in place of positions, a bias of attention that grows with the distance.
namespace oometer {

/// The slope of each head, in float32, and the names of the function that makes them: transformers 5.23,
/// _get_alibi_slopes in models/bloom/modeling_bloom.py, the beginning of build_alibi_tensor in
/// models/falcon/modeling_falcon.py.
struct AlibiSlopes {
  AlibiSlopes(Context& context, std::int64_t heads);

  Tensor base, powers, slopes, extra_base, extra_powers;
};

}  // namespace oometer
