#pragma once

#include "models/vit/vit.h"

/// transformers 5.23, models/vit_mae/modeling_vit_mae.py. Names and order of steps are that file's.
namespace oometer {

inline constexpr VitClassNames kVitMae{
    "ViTMAEModel", "ViTMAEEmbeddings", "ViTMAEPatchEmbeddings", "ViTMAELayer", "ViTMAEAttention", "ViTMAEMLP", "vit",
    true};

/// class ViTMAEConfig (models/vit_mae/configuration_vit_mae.py): what it has beside ViTConfig's fields.
struct VitMaeConfig : VitConfig {
  bool pretrains = false;  ///< ForPreTraining
  std::int64_t decoder_num_attention_heads = 16;
  std::int64_t decoder_hidden_size = 512;
  std::int64_t decoder_num_hidden_layers = 8;
  std::int64_t decoder_intermediate_size = 2048;
  bool norm_pix_loss = false;
  std::int64_t num_kept = 0;  ///< patches of an image that the encoder reads

  std::int64_t num_patches() const { return patches(image_size, image_size); }
  /// Numbers of a patch.
  std::int64_t patch_elements() const { return checked_product(num_channels, checked_product(patch_size, patch_size)); }
  bool operator==(const VitMaeConfig&) const = default;
};

std::unique_ptr<Model> build_vit_mae(Context& context, const VitMaeConfig& config, const DataConfig& data,
                                     const ModelOptions& options);

}  // namespace oometer
