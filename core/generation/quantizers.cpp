#include "generation/quantizers.h"

#include <algorithm>
#include <utility>

#include "ops/ops.h"
#include "rounding.h"

namespace oometer {

namespace {

// optimum-quanto 0.2.7: rows and columns of what is quantised, one scale for each of either.
namespace quanto {

/// group (tensor/grouped.py)
Tensor group(const Tensor& base, std::int64_t axis, std::int64_t group_size) {
  if (axis == 0) return view(base, {base.numel() / group_size, group_size});
  const std::int64_t axis_dim = base.size(-1), axis_groups = base.numel() / axis_dim / group_size;
  const Tensor grouped = transpose(view(base, {axis_groups, group_size, axis_dim}), 0, 1);
  return reshape(transpose(grouped, 1, 2), {group_size, axis_dim * axis_groups});
}

/// ungroup
Tensor ungroup(const Tensor& grouped, std::int64_t axis, const Shape& sizes) {
  if (axis == 0) return view(grouped, sizes);
  const std::int64_t group_size = grouped.size(0), axis_dim = sizes[-1], axis_groups = grouped.size(1) / axis_dim;
  const Tensor split = transpose(view(grouped, {group_size, axis_dim, axis_groups}), 1, 2);
  return reshape(transpose(split, 0, 1), sizes);
}

/// pack_weights (tensor/packed.py): a part of the rows after another is shifted.
Tensor pack(const Tensor& integers, std::int64_t bits) {
  Context& context = integers.context();
  const std::int64_t values_per_item = 8 / bits, rows = integers.size(0), columns = integers.size(1);
  const std::int64_t packed_rows = divide_up(rows, values_per_item);
  Tensor packed = empty(context, Op::zeros, {packed_rows, columns}, DType::uint8, Role::kv_cache);
  for (std::int64_t i = 0, parts = std::min(values_per_item, rows / packed_rows + 1); i < parts; ++i) {
    const std::int64_t part = std::clamp<std::int64_t>(rows - i * packed_rows, 0, packed_rows);
    const Tensor shifted = empty(context, Op::mul, {part, columns}, DType::uint8);
  }
  return packed;
}

/// QuantoQuantizedLayer._quantize: MaxOptimizer, then quantize_weight.
QuantizedStates quantize(const CacheConfig& config, std::int64_t axis, const Tensor& states) {
  Context& context = states.context();
  const DType dtype = states.dtype();
  QuantizedStates quantized;
  quantized.sizes = states.sizes();
  Tensor scale, shift;
  {
    const Tensor base = group(states, axis, config.q_group_size);
    // A single group is taken for no groups.
    const int reduced = axis == 0 && base.size(0) > 1 ? 1 : 0;
    const Tensor rmin = reduce(Op::maximum, base, {reduced}, true, dtype);
    const Tensor rmax = reduce(Op::maximum, base, {reduced}, true, dtype);
    {
      const Tensor range = sub(rmax, rmin);
      scale = empty(context, Op::div, range.sizes(), dtype, Role::kv_cache);
    }
    shift = empty(context, Op::neg, rmin.sizes(), dtype, Role::kv_cache);
  }
  Tensor integers;
  {  // quantize_affine (library/quantize.py)
    const Tensor base = group(states, axis, config.q_group_size);
    const auto result = [&](Op op) { return empty(context, op, base.sizes(), dtype); };
    Tensor data = result(Op::add);
    data = result(Op::div);
    data = result(Op::clamp);  // torch.round
    const Tensor clamped = result(Op::clamp);
    integers = empty(context, Op::to_copy, base.sizes(), DType::uint8);
  }
  quantized.tensors = {pack(integers, config.nbits), scale, shift};
  return quantized;
}

/// QBitsDequantizer (tensor/qbits.py), with the CUDA extension's unpack (library/extensions/cuda/unpack.cu).
Tensor dequantize(const CacheConfig& config, std::int64_t axis, const QuantizedStates& states, DType dtype) {
  const Tensor& packed = states.tensors[0];
  Context& context = packed.context();
  const std::int64_t columns = packed.size(1);
  Tensor data;
  {
    const Tensor unpacked =
        empty(context, Op::dequantize, {packed.size(0) * (8 / config.nbits), columns}, DType::uint8);
    data = empty(context, Op::mul, {numel(states.sizes) / columns, columns}, dtype);
  }
  return ungroup(data, axis, states.sizes);
}

}  // namespace quanto

// hqq 0.2.8 (core/quantize.py, optimize.py, bitpack.py): groups by rows (axis 1) or columns.
namespace hqq {

Shape grouped(const Shape& sizes, std::int64_t axis, std::int64_t group_size) {
  const std::int64_t groups = numel(sizes) / group_size;
  return axis == 1 ? Shape{groups, group_size} : Shape{group_size, groups};
}

/// How many rows of integers share one of the packed ones, which are int32 for 3 bits.
std::int64_t rows_in_one(std::int64_t bits) { return bits == 3 ? 10 : 8 / bits; }
DType packed_dtype(std::int64_t bits) { return bits == 3 ? DType::int32 : DType::uint8; }

/// optimize_weights_proximal_legacy: at most 20 iterations, each with the same memory; where not every step is asked
/// for, two show what one finds of the one before. Gives scale and zero, and W_q in float32.
TensorList optimize(Context& context, const Shape& sizes, const Shape& scales) {
  constexpr DType half = DType::float16;
  const auto whole = [&](Op op) { return empty(context, op, sizes, half); };
  Tensor weights = whole(Op::to_copy);
  const Tensor scale = empty(context, Op::to_copy, scales, half);
  Tensor quantized, dequantized, zero = empty(context, Op::to_copy, scales, half);
  Tensor best_error = empty(context, Op::to_copy, {}, DType::float32);
  for (int i = 0, iterations = context.repeats ? 2 : 20; i < iterations; ++i) {
    Tensor new_quantized = whole(Op::mul);
    new_quantized = whole(Op::add);
    new_quantized = whole(Op::clamp);
    Tensor new_dequantized = whole(Op::sub);
    new_dequantized = whole(Op::div);
    Tensor error;
    {  // shrink_lp_op
      const Tensor difference = whole(Op::sub);
      error = whole(Op::abs);
      {
        const Tensor power = whole(Op::pow);
        const Tensor scaled = whole(Op::mul);
      }
      const Tensor sign = whole(Op::clamp);
    }
    Tensor moved = whole(Op::sub);
    moved = whole(Op::mul);
    moved = whole(Op::sub);
    zero = reduce(Op::mean, moved, {scales[0] == 1 ? 0 : 1}, true, half);
    moved.reset();
    error.reset();
    dequantized = std::move(new_dequantized);
    quantized = std::move(new_quantized);
    error = whole(Op::sub);
    error = whole(Op::abs);
    Tensor mean_error = reduce(Op::mean, error, {0, 1}, false, half);
    error.reset();
    const Tensor current_error = to(mean_error, DType::float32);
    mean_error.reset();
    { const Tensor is_better = empty(context, Op::lt, {}, DType::boolean); }
    best_error = current_error;
  }
  weights.reset();
  quantized.reset();
  dequantized.reset();
  context.empty_cache();
  Tensor rounded = empty(context, Op::mul, sizes, DType::float32);
  rounded = empty(context, Op::add, sizes, DType::float32);
  rounded = empty(context, Op::clamp, sizes, DType::float32);
  return {rounded, scale, zero};
}

Tensor pack(const Tensor& weights, std::int64_t bits) {
  Context& context = weights.context();
  const std::int64_t parts = rows_in_one(bits), columns = weights.size(1), rows = divide_up(weights.size(0), parts);
  const DType dtype = packed_dtype(bits);
  Tensor integers = empty(context, Op::to_copy, {rows * parts, columns}, dtype, Role::kv_cache);
  if (parts == 1) return integers;
  const auto part = [&](Op op) { return empty(context, op, {rows, columns}, dtype, Role::kv_cache); };
  Tensor packed = part(Op::mul);
  for (std::int64_t i = 1; i < parts; ++i) {
    const Tensor shifted = i + 1 < parts ? part(Op::mul) : Tensor();
    packed = part(Op::bitwise_or);
  }
  return packed;
}

/// Quantizer.quantize, then what HQQQuantizedLayer._quantize does to its result.
QuantizedStates quantize(const CacheConfig& config, std::int64_t axis, const Tensor& states) {
  Context& context = states.context();
  QuantizedStates quantized;
  quantized.sizes = states.sizes();
  const Shape sizes = grouped(states.sizes(), axis, config.q_group_size);
  const Shape scales = axis == 1 ? Shape{sizes[0], 1} : Shape{1, sizes[1]};
  const auto scale_like = [&](Op op, DType dtype) { return empty(context, op, scales, dtype); };
  Tensor packed, scale, zero;
  {
    Tensor range, rounded;
    {
      const Tensor weights = view(to(states, DType::float32), sizes);
      const auto extreme = [&] {
        Tensor values = reduce(Op::maximum, weights, {axis == 1 ? 1 : 0}, true, DType::float32);
        const Tensor indices = scale_like(Op::maximum, DType::int64);
        return values;
      };
      const Tensor least = extreme(), most = extreme();
      range = sub(most, least);
      {
        Tensor wide;
        {
          const Tensor reciprocal = scale_like(Op::reciprocal, DType::float32);
          wide = scale_like(Op::mul, DType::float32);
        }
        Tensor is_small;
        {
          const Tensor magnitude = scale_like(Op::abs, DType::float32);
          is_small = scale_like(Op::le, DType::boolean);
        }
        const Tensor ones = scale_like(Op::fill, DType::float32);
        wide = scale_like(Op::where, DType::float32);
        scale = scale_like(Op::clamp, DType::float32);
      }
      {
        const Tensor negative = scale_like(Op::neg, DType::float32);
        zero = scale_like(Op::mul, DType::float32);
      }
      const TensorList optimized = optimize(context, sizes, scales);
      rounded = optimized[0];
      scale = optimized[1];
      zero = optimized[2];
    }
    context.empty_cache();
    {
      const Tensor reciprocal = scale_like(Op::reciprocal, DType::float16);
      scale = empty(context, Op::mul, scales, DType::float16, Role::kv_cache);
    }
    packed = pack(rounded, config.nbits);
    rounded.reset();
    context.empty_cache();
  }
  quantized.tensors = {packed, to(scale, states.dtype()), Tensor()};
  scale.reset();
  quantized.tensors[2] = to(zero, states.dtype());
  for (const Tensor& tensor : quantized.tensors) context.set_role(tensor, Role::kv_cache, context.module);
  return quantized;
}

Tensor dequantize(const CacheConfig& config, std::int64_t axis, const QuantizedStates& states, DType dtype) {
  const Tensor& packed = states.tensors[0];
  Context& context = packed.context();
  const std::int64_t parts = rows_in_one(config.nbits);
  const Shape sizes = grouped(states.sizes, axis, config.q_group_size);
  Tensor data;
  {
    const Tensor unpacked = empty(context, Op::dequantize, {packed.size(0) * parts, packed.size(1)}, dtype);
    for (std::int64_t i = 0; parts > 1 && i < parts; ++i) {
      const Tensor masked = empty(context, Op::bitwise_and, packed.sizes(), packed.dtype());
      const Tensor shifted = i + 1 < parts ? empty(context, Op::mul, packed.sizes(), packed.dtype()) : Tensor();
    }
    const Tensor moved = empty(context, Op::sub, sizes, dtype);
    data = empty(context, Op::mul, sizes, dtype);
  }
  return view(data, states.sizes);
}

}  // namespace hqq

}  // namespace

QuantizedStates quantize(const CacheConfig& config, std::int64_t axis, const Tensor& states) {
  return (config.backend == CacheBackend::hqq ? hqq::quantize : quanto::quantize)(config, axis, states);
}

Tensor dequantize(const CacheConfig& config, std::int64_t axis, const QuantizedStates& states, DType dtype) {
  return (config.backend == CacheBackend::hqq ? hqq::dequantize : quanto::dequantize)(config, axis, states, dtype);
}

}  // namespace oometer
