#pragma once

#include <cstdint>

namespace oometer {

/// fp32, bf16, fp16: the dtype of the weights themselves. amp_*: fp32 weights under autocast.
enum class Precision : std::uint8_t { fp32, bf16, fp16, amp_bf16, amp_fp16 };

}  // namespace oometer
