#include "time/gpu_speed.h"

#include <algorithm>
#include <cstddef>

namespace oometer {

namespace {

#include "time/speeds.inc"

}  // namespace

const GpuSpeed* find_speed(std::string_view gpu) {
  for (const GpuSpeed& speed : kGpus)
    if (speed.id == gpu) return &speed;
  return nullptr;
}

ChipRates rates_of(const GpuSpeed& gpu) {
  const auto* chip =
      std::find_if(std::begin(kChips), std::end(kChips), [&](const Chip& c) { return c.id == gpu.chip; });
  ChipRates found{*chip, {}};
  Chip& rates = found.rates;
  found.is_known.half = rates.half.flops > 0;
  if (!found.is_known.half) rates.half = kUsual.half;
  found.is_known.single = rates.single.flops > 0;
  if (!found.is_known.single) rates.single = kUsual.single;
  found.is_known.attention = rates.attention_128.flops > 0;
  if (rates.attention_64.flops == 0)
    rates.attention_64 = found.is_known.attention ? rates.attention_128 : kUsual.attention_64;
  if (!found.is_known.attention) rates.attention_128 = kUsual.attention_128;
  if (rates.elementwise == 0) rates.elementwise = kUsual.elementwise;
  found.is_known.reduction = rates.reduction > 0;
  if (!found.is_known.reduction) rates.reduction = kUsual.reduction;
  return found;
}

Collective collective_rate(Fabric fabric, bool is_all_reduce, std::int64_t ranks) {
  const std::size_t column = ranks <= 2 ? 0 : ranks <= 4 ? 1 : 2;
  return kCollectives[static_cast<std::size_t>(fabric)][is_all_reduce ? 0 : 1][column];
}

double peak_flops(const GpuSpeed& gpu, DType dtype, bool tensor_float_32) {
  constexpr double kTera = 1e12;
  switch (dtype) {
    case DType::float32:
      return kTera * (tensor_float_32 && gpu.tf32 > 0 ? gpu.tf32 : gpu.fp32);
    case DType::bfloat16:
      return kTera * gpu.bf16;
    case DType::float16:
      return kTera * gpu.fp16;
    default:
      return 0;
  }
}

}  // namespace oometer
