#pragma once

#include <cstddef>
#include <vector>

#include "tensor/tensor_list.h"

/// What load_backbone (transformers 5.23, backbone_utils.py) gives to a model with a head of its own.
namespace oometer {

class ConfigReader;

struct ImageBackbone {
  ImageBackbone() = default;
  ImageBackbone(const ImageBackbone&) = delete;
  ImageBackbone& operator=(const ImageBackbone&) = delete;
  virtual ~ImageBackbone() = default;
  /// The feature maps that its config hands on, the first one the finest.
  virtual TensorList operator()(const Tensor& pixel_values) const = 0;
};

/// Of the stem and the stages behind it.
inline constexpr const char* kStageNames[] = {"stem",   "stage1", "stage2", "stage3", "stage4",
                                              "stage5", "stage6", "stage7", "stage8"};

/// `out_features` or `out_indices` of a backbone's config: stages, counted from the stem (0); the last one where it has
/// neither.
std::vector<std::size_t> read_out_features(ConfigReader& backbone, std::size_t stages);

}  // namespace oometer
