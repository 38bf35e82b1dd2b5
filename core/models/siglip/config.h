#pragma once

#include <cstdint>
#include <utility>

#include "models/clip/config.h"

namespace oometer {

/// transformers 5.23, models/siglip/modeling_siglip.py: CLIP's layers without a class token, under these names.
inline constexpr VisionFamily kSiglipVision{"SiglipVisionModel",
                                            "SiglipVisionEmbeddings",
                                            "SiglipEncoder",
                                            "SiglipEncoderLayer",
                                            "SiglipAttention",
                                            "SiglipMLP",
                                            false,
                                            false,
                                            true};

/// SigLIP 2's tower of patches (NaFlex): SigLIP's layers, positions stretched to each image.
inline constexpr VisionFamily kSiglip2Vision{"Siglip2VisionModel",
                                             "Siglip2VisionEmbeddings",
                                             "Siglip2Encoder",
                                             "Siglip2EncoderLayer",
                                             "Siglip2Attention",
                                             "Siglip2MLP",
                                             false,
                                             false,
                                             true};

/// class SiglipVisionConfig (models/siglip/configuration_siglip.py).
ClipVisionConfig read_siglip_vision_config(ConfigReader& reader);
/// class Siglip2VisionConfig (models/siglip2/configuration_siglip2.py); `num_positions`: of the table (num_patches).
ClipVisionConfig read_siglip2_vision_config(ConfigReader& reader, std::int64_t& num_positions);

/// class SiglipConfig of the same file, also of the tower alone.
struct SiglipConfig {
  ClipVisionConfig vision;
  bool has_text = true;              ///< SiglipModel
  ClipTextConfig text;               ///< SiglipTextConfig
  std::int64_t projection_size = 0;  ///< of the text's head
  /// SigLIP 2's: images keep their shape, as so many patches at most; 0: SigLIP's.
  std::int64_t num_patches = 0;

  bool is_naflex() const { return num_patches != 0; }
  /// Rows and columns of patches of an image, as Siglip2ImageProcessor cuts it.
  std::pair<std::int64_t, std::int64_t> cut(std::int64_t height, std::int64_t width) const;

  bool operator==(const SiglipConfig&) const = default;
};
/// `has_text`: of SiglipModel; else of SiglipVisionModel. `is_naflex`: of SigLIP 2's.
SiglipConfig read_siglip_config(ConfigReader& reader, bool has_text, bool is_naflex);

}  // namespace oometer
