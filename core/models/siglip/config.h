#pragma once

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

/// class SiglipVisionConfig (models/siglip/configuration_siglip.py).
ClipVisionConfig read_siglip_vision_config(ConfigReader& reader);

/// class SiglipConfig of the same file, also of the tower alone.
struct SiglipConfig {
  ClipVisionConfig vision;
  bool has_text = true;              ///< SiglipModel
  ClipTextConfig text;               ///< SiglipTextConfig
  std::int64_t projection_size = 0;  ///< of the text's head

  bool operator==(const SiglipConfig&) const = default;
};
/// `has_text`: of SiglipModel; else of SiglipVisionModel.
SiglipConfig read_siglip_config(ConfigReader& reader, bool has_text);

}  // namespace oometer
