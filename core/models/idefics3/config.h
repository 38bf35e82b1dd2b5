#pragma once

#include <utility>

#include "models/data.h"
#include "models/vision_language.h"

namespace oometer {

/// What the classes are called: SmolVLM's (models/smolvlm) are copies of Idefics3's (models/idefics3). Idefics2's
/// (models/idefics2) have the same tower, before which no image is cut, and a perceiver behind it.
struct Idefics3Family {
  const char *model_type, *conditional_generation, *model, *connector, *simple_mlp;
  VisionFamily vision;
  bool has_perceiver = false;
};
inline constexpr Idefics3Family kIdefics3{
    "idefics3",
    "Idefics3ForConditionalGeneration",
    "Idefics3Model",
    "Idefics3Connector",
    "Idefics3SimpleMLP",
    {"Idefics3VisionTransformer", "Idefics3VisionEmbeddings", "Idefics3Encoder", "Idefics3EncoderLayer",
     "Idefics3VisionAttention", "Idefics3VisionMLP", false, false}};
inline constexpr Idefics3Family kIdefics2{
    "idefics2",
    "Idefics2ForConditionalGeneration",
    "Idefics2Model",
    "Idefics2Connector",
    "Idefics2MLP",
    {"Idefics2VisionTransformer", "Idefics2VisionEmbeddings", "Idefics2Encoder", "Idefics2EncoderLayer",
     "Idefics2VisionAttention", "Idefics2VisionMLP", false, false},
    true};
inline constexpr Idefics3Family kSmolVlm{
    "smolvlm",
    "SmolVLMForConditionalGeneration",
    "SmolVLMModel",
    "SmolVLMConnector",
    "SmolVLMSimpleMLP",
    {"SmolVLMVisionTransformer", "SmolVLMVisionEmbeddings", "SmolVLMEncoder", "SmolVLMEncoderLayer",
     "SmolVLMVisionAttention", "SmolVLMVisionMLP", false, false}};

/// class Idefics2PerceiverConfig (models/idefics2/configuration_idefics2.py); its hidden_size is the language model's.
struct Idefics2PerceiverConfig {
  std::int64_t n_latents = 64, depth = 3, n_heads = 16, head_dim = 96, num_key_value_heads = 4;
  double attention_dropout = 0;
  Activation hidden_act = Activation::silu;

  bool operator==(const Idefics2PerceiverConfig&) const = default;
};

/// transformers 5.23, models/idefics3/configuration_idefics3.py and models/smolvlm/configuration_smolvlm.py.
struct Idefics3Config : VisionLanguageConfig {
  const Idefics3Family* family = &kIdefics3;
  std::int64_t scale_factor = 2;
  /// What the processor does (image_processing_idefics3.py), as published configs say it too: images are scaled until
  /// their longer side is `longest_edge`, then cut into tiles of `tile_size`.
  std::int64_t longest_edge = 896;
  std::int64_t tile_size = 224;
  Idefics2PerceiverConfig perceiver{};  ///< Idefics2's

  /// Height and width of what the tower sees of an image, in pixels: a tile, or the image as Idefics2's processor
  /// resizes it.
  std::pair<std::int64_t, std::int64_t> pixels(const ImageShape& image) const;
  std::int64_t patches_per_tile(const ImageShape& image) const {
    const auto [height, width] = pixels(image);
    return (height / vision.patch_size) * (width / vision.patch_size);
  }
  /// Tokens of the language model that one tile takes.
  std::int64_t tokens_per_tile() const {
    if (family->has_perceiver) return perceiver.n_latents;
    return patches_per_tile({}) / (scale_factor * scale_factor);
  }
  /// Tiles of an image, the whole image scaled down among them.
  std::int64_t tiles(std::int64_t height, std::int64_t width) const;

  bool operator==(const Idefics3Config&) const = default;
};

Idefics3Config read_idefics3_config(ConfigReader& reader, const Idefics3Family& family);

}  // namespace oometer
