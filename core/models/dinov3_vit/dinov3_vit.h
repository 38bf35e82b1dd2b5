#pragma once

#include "models/vit/vit.h"

/// transformers 5.23, models/dinov3_vit/modeling_dinov3_vit.py. Names and order of steps are that file's.
namespace oometer {

inline constexpr VitClassNames kDinov3{"DINOv3ViTModel",     "DINOv3ViTEmbeddings", "", "DINOv3ViTLayer",
                                       "DINOv3ViTAttention", "DINOv3ViTMLP",        "", false};

/// class DINOv3ViTConfig: what it has beside the fields of the others.
struct Dinov3Config : VitConfig {
  bool query_bias = true, key_bias = false, value_bias = true, proj_bias = true, mlp_bias = true;
  bool use_gated_mlp = false;
  /// Positions of patches are moved, stretched each way or as a whole, at random (pos_embed_shift, ...): null or not.
  bool shifts = false, jitters = false, rescales = true;

  bool operator==(const Dinov3Config&) const = default;
};

std::unique_ptr<Model> build_dinov3(Context& context, const Dinov3Config& config, const DataConfig& data,
                                    const ModelOptions& options);

}  // namespace oometer
