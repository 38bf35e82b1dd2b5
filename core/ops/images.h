#pragma once

#include <cstdint>

#include "tensor/tensor.h"

/// Operators that necks between a backbone and its head are made of (PyTorch 2.15 on CUDA).
namespace oometer {

/// F.pad at the end of several dimensions at once: `sizes` are the result's.
Tensor pad_to(const Tensor& x, const Shape& sizes);
/// F.adaptive_avg_pool2d to [side, side].
Tensor adaptive_avg_pool(const Tensor& x, std::int64_t side);

/// x.suggest_memory_format() of images, which asks strides alone (c10/core/MemoryFormat.h,
/// is_channels_last_strides_2d_s4): there may be gaps between images.
bool is_like_channels_last(const Tensor& x);

}  // namespace oometer
