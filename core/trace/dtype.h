#pragma once

#include <cstdint>

namespace oometer {

/// Element types, named as PyTorch's (`torch.bfloat16`, ...).
enum class DType : std::uint8_t { float64, float32, float16, bfloat16, int64, int32, uint8, boolean };

/// Bytes of one element.
constexpr std::int64_t element_size(DType dtype) {
  switch (dtype) {
    case DType::float64:
    case DType::int64:
      return 8;
    case DType::float32:
    case DType::int32:
      return 4;
    case DType::float16:
    case DType::bfloat16:
      return 2;
    case DType::uint8:
    case DType::boolean:
      return 1;
  }
  return 0;
}

constexpr bool is_floating_point(DType dtype) { return dtype <= DType::bfloat16; }

/// float16 and bfloat16: the types that autocast casts to and whose accumulations run in float32.
constexpr bool is_half(DType dtype) { return dtype == DType::float16 || dtype == DType::bfloat16; }

constexpr const char* dtype_name(DType dtype) {
  constexpr const char* kNames[] = {"fp64", "fp32", "fp16", "bf16", "int64", "int32", "uint8", "bool"};
  return kNames[static_cast<int>(dtype)];
}

}  // namespace oometer
