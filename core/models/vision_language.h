#pragma once

#include "models/clip/config.h"
#include "models/family.h"
#include "models/llama/config.h"

namespace oometer {

/// What every model with a vision tower, a projector and a language model has.
struct VisionLanguageConfig {
  ClipVisionConfig vision;
  LlamaConfig text;
  bool tie_word_embeddings = false;  ///< lm_head is the embedding

  bool operator==(const VisionLanguageConfig&) const = default;
};

/// What such a model has of its language model, and what it has not: peft knows no targets of it, Liger's kernels and
/// quantised weights were not compared with the libraries' own.
ModelTraits vision_language_traits(const char* class_name, const LlamaConfig& text, bool ties_embeddings);
/// With CLIP's kind of tower.
ModelTraits vision_language_traits(const char* class_name, const VisionLanguageConfig& config);
/// An image cut into tiles, or into as many as the job says (not 0).
template <class Config>
ImageCount count_tiles(const FamilyConfig& config, std::int64_t height, std::int64_t width, std::int64_t tiles) {
  const auto& c = config.as<Config>();
  if (tiles == 0) tiles = c.tiles(height, width);
  return {tiles, tiles * c.tokens_per_tile()};
}

/// What the whole model has beside the connector between the two.
double largest_tensor_of(const VisionLanguageConfig& config, const DataConfig& data);

}  // namespace oometer
