#pragma once

#include <cstdint>

#include "models/data.h"
#include "tensor/tensor.h"

/// Learned positions of a square, sampled for the patches of each image: get_vision_interpolation_indices_and_weights
/// (transformers 5.23, vision_utils.py).
namespace oometer {

struct InterpolationRule {
  std::int64_t taps = 2;  ///< along an axis: "bilinear"; 4: "bicubic"
  bool aligns_corners = false;
  bool pads_with_zeros = false;  ///< else with what is at the border
};

/// Which of the learned positions are mixed for each patch, and how much of each: [patches, taps * taps].
struct Interpolation {
  Tensor indices, weights;
};
Interpolation interpolation(Context& context, const DataConfig& data, const InterpolationRule& rule);

}  // namespace oometer
