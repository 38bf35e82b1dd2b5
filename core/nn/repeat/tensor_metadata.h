#pragma once

#include "tensor/tensor.h"

namespace oometer {

/// What can be told of a tensor, apart from whose memory it has (as torch.fx's TensorMetadata).
struct TensorMetadata {
  explicit TensorMetadata(const Tensor& x)
      : sizes(x.sizes()), strides(x.strides()), dtype(x.dtype()), requires_grad(x.requires_grad()) {}
  bool operator==(const TensorMetadata& other) const = default;

  Shape sizes, strides;
  DType dtype;
  bool requires_grad;
};

}  // namespace oometer
