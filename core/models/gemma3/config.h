#pragma once

#include <cstdint>

#include "models/clip/config.h"
#include "models/kit/text_config.h"

namespace oometer {

/// transformers 5.23, models/gemma3/configuration_gemma3.py, class Gemma3Config: SigLIP's tower, Gemma 3's text.
struct Gemma3Config {
  ClipVisionConfig vision;
  TextConfig text;
  std::int64_t mm_tokens_per_image = 256;
  bool tie_word_embeddings = true;
  ClassifierConfig classifier{};  ///< Gemma3ForSequenceClassification

  std::int64_t patches_per_image() const { return vision.image_size / vision.patch_size; }  ///< along a side
  std::int64_t tokens_per_side() const;

  bool operator==(const Gemma3Config&) const = default;
};

Gemma3Config read_gemma3_config(ConfigReader& reader);

}  // namespace oometer
