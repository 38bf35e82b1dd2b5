#pragma once

#include <cstdint>
#include <vector>

#include "nn/module.h"
#include "tensor/tensor_list.h"

/// Attention of queries to a few places of feature maps, which DETR's later kin have (transformers 5.23,
/// models/deformable_detr/modeling_deformable_detr.py).
namespace oometer {

/// Feature maps of several sizes, one behind another: [b, places of all, width].
struct FeatureLevels {
  struct Size {
    std::int64_t height, width;
    std::int64_t places() const { return checked_product(height, width); }
  };
  Tensor flattened, spatial_shapes, level_start_index;
  std::vector<Size> sizes;
};

/// x, all of whose maps are flattened, and the two lists of sizes, on the device: of [b, width, h, w] each.
FeatureLevels flatten_levels(const TensorList& sources);
/// `torch.cat((spatial_shapes.new_zeros((1,)), spatial_shapes.prod(1).cumsum(0)[:-1]))`
Tensor level_starts(const Tensor& spatial_shapes);

struct DeformableSizes {
  std::int64_t d_model, heads, levels, points;
  bool scales_points = false;  ///< RTDetrV2MultiscaleDeformableAttention
  /// Mask2FormerPixelDecoderEncoderMultiscaleDeformableAttention: a function samples, and the mask says what is
  /// padding.
  bool masks_padding = false;
};

/// DeformableDetrMultiscaleDeformableAttention, and the same of RT-DETR and its second version.
struct DeformableAttention {
  DeformableAttention(const Builder& builder, const DeformableSizes& sizes);
  /// `weights`: what it returns beside. reference_points: [b, queries, levels or 1, 2 or 4]. `attention_mask`: null, or
  /// which places are no padding (`masks_padding`: are).
  Tensor operator()(const Tensor& hidden_states, const Tensor& position_embeddings, const FeatureLevels& encoder,
                    const Tensor& reference_points, Tensor& weights, const Tensor& attention_mask = {}) const;

  DeformableSizes sizes;
  Linear sampling_offsets, attention_weights, value_proj, output_proj;
  Tensor n_points_scale;
  ModuleId module, attn = 0;

 private:
  Tensor sample(const Tensor& value, const FeatureLevels& encoder, const Tensor& locations,
                const Tensor& weights) const;
  Tensor sample_levels(const Tensor& value, const FeatureLevels& encoder, const Tensor& locations,
                       const Tensor& weights) const;
  Tensor sample_scaled(const Tensor& value, const FeatureLevels& encoder, const Tensor& locations,
                       const Tensor& weights) const;
};

/// get_reference_points of deformable encoders: the middle of each place of all levels, [batch, places, levels, 2].
Tensor get_reference_points(const FeatureLevels& levels, const Tensor& valid_ratios);

}  // namespace oometer
