#include "models/kit/interpolation.h"

#include "models/kit/grids.h"
#include "ops/cub.h"
#include "ops/integers.h"

namespace oometer {

namespace {

/// _interpolation_axis_taps_weights
class AxisTaps {
 public:
  AxisTaps(Context& context, std::int64_t patches, const InterpolationRule& rule)
      : context_(context), rule_(rule), one_{patches}, all_{patches, rule.taps} {}

  Interpolation make() const {
    // Python's locals go in the order in which they were bound: these in the reverse of their declaration.
    Tensor far, near, weights, distance, taps, raw_taps, offsets, floor, src, index;
    index = floats(Op::to_copy, one_);
    src = source();
    floor = floats(Op::floor, one_);
    offsets = integers(context_, Op::arange, {rule_.taps});
    {
      const Tensor whole = integers(context_, Op::to_copy, one_);
      raw_taps = integers(context_, Op::add, all_);
    }
    taps = integers(context_, Op::clamp, all_);
    {
      Tensor from_floor = floats(Op::sub, one_);
      const Tensor from_taps = floats(Op::sub, all_);
      from_floor.reset();
      distance = floats(Op::abs, all_);
    }
    if (rule_.taps == 2) {
      const Tensor nearness = floats(Op::sub, all_);
      weights = floats(Op::clamp, all_);
    } else {
      // ((a + 2) * d - (a + 3)) * d * d + 1 and ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
      near = steps({Op::mul, Op::sub, Op::mul, Op::mul, Op::add});
      far = steps({Op::mul, Op::sub, Op::mul, Op::add, Op::mul, Op::sub});
      const Tensor is_near = booleans(Op::le);
      weights = floats(Op::where, all_);
    }
    if (rule_.pads_with_zeros) {
      const Tensor is_inside = [&] {
        const Tensor from = booleans(Op::ge), until = booleans(Op::le);
        return booleans(Op::bitwise_and);
      }();
      weights = floats(Op::mul, all_);
    }
    return {taps, weights};
  }

 private:
  Tensor floats(Op op, const Shape& sizes) const { return empty(context_, op, sizes, DType::float32); }
  Tensor booleans(Op op) const { return empty(context_, op, all_, DType::boolean); }
  /// One after another, each of what the one before made.
  Tensor steps(std::initializer_list<Op> ops) const {
    Tensor x;
    for (const Op op : ops) x = floats(op, all_);
    return x;
  }
  Tensor source() const {
    if (!rule_.aligns_corners) {  // (index + 0.5) * side / size - 0.5
      Tensor x;
      for (const Op op : {Op::add, Op::mul, Op::div, Op::sub}) x = floats(op, one_);
      return x;
    }
    const Tensor scaled = floats(Op::mul, one_);
    Tensor last = integers(context_, Op::sub, one_);
    const Tensor divisor = integers(context_, Op::clamp, one_);
    last.reset();
    return floats(Op::div, one_);
  }

  Context& context_;
  const InterpolationRule& rule_;
  Shape one_, all_;
};

}  // namespace

Interpolation interpolation(Context& context, const DataConfig& data, const InterpolationRule& rule) {
  const std::int64_t images = data.images(), patches = data.all_patches(), taps = rule.taps;
  const auto numbers = [&](Op op) { return integers(context, op, {patches}); };
  // Python's locals go in the order in which they were bound: these in the reverse of their declaration.
  Interpolation result, columns, rows;
  Tensor col, row, block_row, block_col, in_row, in_col, blocks_w, within, starts, widths, heights, counts;
  {
    const Tensor areas = integers(context, Op::mul, {images});
    counts = integers(context, Op::mul, {images});
  }
  heights = repeat_interleave(context, images, false, patches);
  widths = repeat_interleave(context, images, false, patches);
  {
    Tensor sums = integers(context, Op::cumsum, {images});
    { const Workspace scan(context, Op::cumsum, cub_scan_bytes(images)); }
    const Tensor padded = integers(context, Op::constant_pad_nd, {images});
    sums.reset();
    starts = repeat_interleave(context, images, false, patches);
  }
  {
    Tensor all;
    {
      const Tensor count = integers(context, Op::sum, {});
      all = numbers(Op::arange);
    }
    const Tensor own = numbers(Op::sub);
    all.reset();
    const Tensor area = numbers(Op::mul);
    within = numbers(Op::floor_divide);
  }
  blocks_w = numbers(Op::floor_divide);
  in_col = numbers(Op::floor_divide);
  const auto of_quotient = [&](Op op) {
    const Tensor quotient = numbers(Op::floor_divide);
    return numbers(op);
  };
  in_row = of_quotient(Op::floor_divide);
  block_col = of_quotient(Op::floor_divide);
  const auto of_product = [&](Op op) {
    const Tensor product = numbers(Op::mul);
    return numbers(op);
  };
  block_row = of_product(Op::floor_divide);
  row = of_product(Op::add);
  col = of_product(Op::add);
  const AxisTaps axis(context, patches, rule);
  rows = axis.make();
  columns = axis.make();
  {
    const Tensor scaled = integers(context, Op::mul, {patches, taps, 1});
    result.indices = integers(context, Op::add, {patches, taps * taps});
  }
  result.weights = empty(context, Op::mul, {patches, taps * taps}, DType::float32);
  return result;
}

}  // namespace oometer
