#pragma once

#include <memory>

#include "tensor/tensor.h"

/// bitsandbytes 0.50.2: nn/modules.py (Linear4bit), functional.py (QuantState), autograd/_functions.py (MatMul4Bit).
namespace oometer {

/// What it takes to undo a weight's quantisation. Constants of 64 elements each (absmax); with double quantisation
/// those are bytes, with constants of 256 of theirs.
struct QuantState {
  Shape shape;                           ///< the weight's own, [out, in]; packed it is [out * in / 2, 1]
  DType dtype = DType::bfloat16;         ///< what it was quantised from: what it comes back as
  DType compute_dtype = DType::float32;  ///< Linear4bit's
  bool nested = false;                   ///< double quantisation
  Tensor absmax, code, offset, nested_absmax, nested_code;

  static constexpr std::int64_t kBlock = 64, kNestedBlock = 256;
  std::int64_t blocks() const { return (numel(shape) + kBlock - 1) / kBlock; }
};

/// dequantize_4bit: the weight as a whole.
Tensor dequantize_4bit(Context& context, const QuantState& state);

/// Linear4bit.forward: the weight comes back as a whole for the product, in forward and, where the input wants a
/// gradient, in backward. Nothing is kept of the input.
Tensor linear_4bit(const Tensor& x, const std::shared_ptr<const QuantState>& weight, const Tensor& bias);

}  // namespace oometer
