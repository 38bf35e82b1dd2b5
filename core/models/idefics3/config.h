#pragma once

#include "models/vision_language.h"

namespace oometer {

/// What the classes are called: SmolVLM's (models/smolvlm) are copies of Idefics3's (models/idefics3).
struct Idefics3Family {
  const char *model_type, *conditional_generation, *model, *connector, *simple_mlp;
  VisionFamily vision;
};
inline constexpr Idefics3Family kIdefics3{
    "idefics3",
    "Idefics3ForConditionalGeneration",
    "Idefics3Model",
    "Idefics3Connector",
    "Idefics3SimpleMLP",
    {"Idefics3VisionTransformer", "Idefics3VisionEmbeddings", "Idefics3Encoder", "Idefics3EncoderLayer",
     "Idefics3VisionAttention", "Idefics3VisionMLP", false, false}};
inline constexpr Idefics3Family kSmolVlm{
    "smolvlm",
    "SmolVLMForConditionalGeneration",
    "SmolVLMModel",
    "SmolVLMConnector",
    "SmolVLMSimpleMLP",
    {"SmolVLMVisionTransformer", "SmolVLMVisionEmbeddings", "SmolVLMEncoder", "SmolVLMEncoderLayer",
     "SmolVLMVisionAttention", "SmolVLMVisionMLP", false, false}};

/// transformers 5.23, models/idefics3/configuration_idefics3.py and models/smolvlm/configuration_smolvlm.py.
struct Idefics3Config : VisionLanguageConfig {
  const Idefics3Family* family = &kIdefics3;
  std::int64_t scale_factor = 2;
  /// What the processor does (image_processing_idefics3.py), as published configs say it too: images are scaled until
  /// their longer side is `longest_edge`, then cut into tiles of `tile_size`.
  std::int64_t longest_edge = 896;
  std::int64_t tile_size = 224;

  std::int64_t patches_per_tile() const { return (tile_size / vision.patch_size) * (tile_size / vision.patch_size); }
  /// Tokens of the language model that one tile takes.
  std::int64_t tokens_per_tile() const { return patches_per_tile() / (scale_factor * scale_factor); }
  /// Tiles of an image, the whole image scaled down among them.
  std::int64_t tiles(std::int64_t height, std::int64_t width) const;

  bool operator==(const Idefics3Config&) const = default;
};

Idefics3Config read_idefics3_config(ConfigReader& reader, const Idefics3Family& family);

}  // namespace oometer
