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

}  // namespace oometer
