#pragma once

#include "models/clip/config.h"
#include "models/llama/config.h"

namespace oometer {

/// What every model with a vision tower, a projector and a language model has.
struct VisionLanguageConfig {
  ClipVisionConfig vision;
  LlamaConfig text;
  bool tie_word_embeddings = false;  ///< lm_head is the embedding

  bool operator==(const VisionLanguageConfig&) const = default;
};

}  // namespace oometer
