#pragma once

#include <cstdint>

namespace oometer {

/// fp32, bf16, fp16: the dtype of the weights themselves. amp_*: fp32 weights under autocast. bf16_in_autocast: bf16
/// weights under autocast to bf16.
enum class Precision : std::uint8_t { fp32, bf16, fp16, amp_bf16, amp_fp16, bf16_in_autocast };

inline constexpr Precision kAllPrecisions[] = {Precision::fp32,     Precision::bf16,     Precision::fp16,
                                               Precision::amp_bf16, Precision::amp_fp16, Precision::bf16_in_autocast};

}  // namespace oometer
