#pragma once

#include "models/vit/vit.h"

/// transformers 5.23, models/videomae/modeling_videomae.py. Names and order of steps are that file's.
namespace oometer {

inline constexpr VitClassNames kVideoMae{"VideoMAEModel",
                                         "VideoMAEEmbeddings",
                                         "VideoMAEPatchEmbeddings",
                                         "VideoMAELayer",
                                         "VideoMAEAttention",
                                         "",
                                         "videomae",
                                         false};

/// class VideoMAEConfig (models/videomae/configuration_videomae.py): what it has beside ViTConfig's fields.
struct VideoMaeConfig : VitConfig {
  std::int64_t num_frames = 16;
  std::int64_t tubelet_size = 2;  ///< frames of a patch
  bool use_mean_pooling = true;
  bool pretrains = false;  ///< ForPreTraining
  std::int64_t decoder_num_attention_heads = 6;
  std::int64_t decoder_hidden_size = 384;
  std::int64_t decoder_num_hidden_layers = 4;
  std::int64_t decoder_intermediate_size = 1536;
  bool norm_pix_loss = true;
  bool drops_redundant = false;  ///< EVEREST (everest.h)
  std::int64_t num_visible = 0;  ///< patches of a video that are encoded, where not all are
  std::int64_t num_masked = 0;   ///< of which the decoder makes the pixels

  std::int64_t patches_per_frame() const { return patches(image_size, image_size); }
  std::int64_t num_patches() const { return checked_product(num_frames / tubelet_size, patches_per_frame()); }
  /// Numbers of a patch.
  std::int64_t patch_elements() const {
    return checked_product(checked_product(num_channels, tubelet_size), checked_product(patch_size, patch_size));
  }
  bool operator==(const VideoMaeConfig&) const = default;
};

std::unique_ptr<Model> build_videomae(Context& context, const VideoMaeConfig& config, const DataConfig& data,
                                      const ModelOptions& options);

}  // namespace oometer
