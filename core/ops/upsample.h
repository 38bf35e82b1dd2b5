#pragma once

#include <cstdint>

#include "tensor/tensor.h"

namespace oometer {

/// F.interpolate(x, size=(height, width), mode="bilinear", align_corners=False) of images (PyTorch 2.15 on CUDA).
Tensor upsample_bilinear2d(const Tensor& x, std::int64_t height, std::int64_t width);
/// The same of mode="nearest".
Tensor upsample_nearest2d(const Tensor& x, std::int64_t height, std::int64_t width);
/// The same of mode="bicubic".
Tensor upsample_bicubic2d(const Tensor& x, std::int64_t height, std::int64_t width);
/// The same of mode="bicubic" with antialias=True.
Tensor upsample_bicubic2d_aa(const Tensor& x, std::int64_t height, std::int64_t width);

}  // namespace oometer
