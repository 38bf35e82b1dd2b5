#pragma once

#include <cstdint>

namespace oometer {

/// fp32, bf16, fp16: the dtype of the weights themselves. amp_*: fp32 weights under autocast. *_in_autocast: weights
/// under autocast to their own type.
enum class Precision : std::uint8_t { fp32, bf16, fp16, amp_bf16, amp_fp16, bf16_in_autocast, fp16_in_autocast };

inline constexpr Precision kAllPrecisions[] = {Precision::fp32,
                                               Precision::bf16,
                                               Precision::fp16,
                                               Precision::amp_bf16,
                                               Precision::amp_fp16,
                                               Precision::bf16_in_autocast,
                                               Precision::fp16_in_autocast};

/// Weights in half precision under autocast.
constexpr bool are_in_autocast(Precision precision) {
  return precision == Precision::bf16_in_autocast || precision == Precision::fp16_in_autocast;
}
/// Autocast to fp16 goes with a GradScaler.
constexpr bool scales_gradients(Precision precision) {
  return precision == Precision::amp_fp16 || precision == Precision::fp16_in_autocast;
}

}  // namespace oometer
