#include "models/kit/alibi.h"

#include <algorithm>
#include <bit>

#include "ops/ops.h"

namespace oometer {

AlibiSlopes::AlibiSlopes(Context& context, std::int64_t heads) {
  const auto closest = static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(heads)));
  base = empty(context, Op::full_like, {}, DType::float32);
  powers = empty(context, Op::arange, {closest}, DType::int32);
  slopes = pointwise(Op::pow, {&powers}, DType::float32);
  if (closest == heads) return;
  extra_base = empty(context, Op::full_like, {}, DType::float32);
  extra_powers = empty(context, Op::arange, {std::min(closest, heads - closest)}, DType::int32);
  const Tensor extra_slopes = pointwise(Op::pow, {&extra_powers}, DType::float32);
  slopes = cat({slopes, extra_slopes}, 0);
}

}  // namespace oometer
