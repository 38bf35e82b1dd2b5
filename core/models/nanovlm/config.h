#pragma once

#include "models/vision_language.h"

namespace oometer {

/// huggingface/nanoVLM at 91a3b93, models/config.py, class VLMConfig: SigLIP's sizes for the tower, SmolLM2's for the
/// language model, between them a pixel shuffle and one linear layer.
struct NanoVlmConfig : VisionLanguageConfig {
  std::int64_t scale_factor = 2;  ///< mp_pixel_shuffle_factor
  std::int64_t max_length = 512;  ///< lm_max_length: what the collator pads samples to

  /// Tokens of the language model that the image takes.
  std::int64_t tokens_per_image() const { return vision.num_patches() / (scale_factor * scale_factor); }

  bool operator==(const NanoVlmConfig&) const = default;
};

/// config.json as save_pretrained writes it, and a model_type of "nanovlm", which it does not name.
NanoVlmConfig read_nanovlm_config(ConfigReader& reader);

}  // namespace oometer
