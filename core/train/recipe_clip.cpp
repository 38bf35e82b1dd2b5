#include "train/recipe_clip.h"

#include <algorithm>
#include <cstdint>

#include "ops/ops.h"
#include "rounding.h"

namespace oometer {

Tensor clip_recipes_grad_norm(Context& context, const std::vector<Parameter>& parameters) {
  constexpr std::int64_t kChunk = 32768;
  const NoGrad no_grad(context);
  const auto scalar = [&](Op op, DType dtype = DType::float64) { return empty(context, op, {}, dtype); };
  Tensor total;
  {
    Tensor value = scalar(Op::zeros);
    std::vector<DType> dtypes;
    for (const Parameter& parameter : parameters)
      if (const Tensor& grad = parameter.tensor->grad;
          grad && grad.numel() > 0 && std::find(dtypes.begin(), dtypes.end(), grad.dtype()) == dtypes.end())
        dtypes.push_back(grad.dtype());
    for (const DType dtype : dtypes) {  // _reduce_one_dtype
      std::int64_t tensors = 0, chunks = 0;
      for (const Parameter& parameter : parameters)
        if (const Tensor& grad = parameter.tensor->grad; grad && grad.numel() > 0 && grad.dtype() == dtype)
          ++tensors, chunks += divide_up(grad.numel(), kChunk);
      Tensor sum;
      {
        const auto table = [&] { return empty(context, Op::to_copy, {tensors}, DType::int64); };
        const Tensor ptrs = table(), numels = table(), chunk_ends = tensors > 1 ? table() : Tensor();
        const Tensor partials = empty(context, Op::empty, {chunks}, DType::float64);
        sum = scalar(Op::sum);
      }
      Tensor combined = scalar(Op::add);
      sum.reset();
      value = std::move(combined);
    }
    const Tensor norm = scalar(Op::pow);
    {  // _combine_norms
      const Tensor norm_stack = scalar(Op::stack);
      Tensor absolute = scalar(Op::abs);
      const Tensor max_norm = scalar(Op::max);
      absolute.reset();
      Tensor is_finite = scalar(Op::ne, DType::boolean), is_not_zero = scalar(Op::ne, DType::boolean);
      Tensor both = scalar(Op::bitwise_and, DType::boolean), ones = scalar(Op::ones_like);
      is_finite.reset();
      is_not_zero.reset();
      const Tensor scale = scalar(Op::where);
      both.reset();
      ones.reset();
      Tensor term = scalar(Op::div);
      for (const Op op : {Op::pow, Op::sum, Op::pow}) {
        Tensor next = scalar(op);
        term = std::move(next);
      }
      total = scalar(Op::mul);
    }
    Tensor padded = scalar(Op::add), inverse = scalar(Op::reciprocal), coefficient = scalar(Op::mul);
    inverse.reset();
    padded.reset();
    const Tensor clamped = scalar(Op::clamp);
  }
  return total;
}

}  // namespace oometer
