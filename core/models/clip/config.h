#pragma once

#include <cstdint>

#include "config/activation.h"

/// transformers 5.23, models/clip/configuration_clip.py: the fields that decide memory.
namespace oometer {

class ConfigReader;

/// The vision transformers whose layers run CLIP's operators, and what their classes are called.
struct VisionFamily {
  const char *model, *embeddings, *encoder, *encoder_layer, *attention, *mlp;
  bool has_class_token;
  bool projects_first;      ///< see project (nn/attention.h)
  bool norm_first = false;  ///< a layer has its norms before what they feed, where its parameters are listed
};
inline constexpr VisionFamily kClipVision{"CLIPVisionModel",
                                          "CLIPVisionEmbeddings",
                                          "CLIPEncoder",
                                          "CLIPEncoderLayer",
                                          "CLIPAttention",
                                          "CLIPMLP",
                                          true,
                                          true};

/// class CLIPVisionConfig; those of the others have the same fields, as far as they decide memory.
struct ClipVisionConfig {
  const VisionFamily* family = &kClipVision;
  std::int64_t hidden_size = 768;
  std::int64_t intermediate_size = 3072;
  std::int64_t projection_dim = 512;  ///< used by classes with a projection only
  std::int64_t num_hidden_layers = 12;
  std::int64_t num_attention_heads = 12;
  std::int64_t num_channels = 3;
  std::int64_t image_size = 224;  ///< pixels; the model takes square images only
  std::int64_t patch_size = 32;
  Activation hidden_act = Activation::quick_gelu;
  double attention_dropout = 0.0;
  bool has_head = false;  ///< SigLIP's (vision_use_head)

  /// Floors as Conv2d does.
  std::int64_t num_patches() const { return (image_size / patch_size) * (image_size / patch_size); }
  /// Patches and the class token, if there is one.
  std::int64_t num_positions() const { return num_patches() + (family->has_class_token ? 1 : 0); }

  bool operator==(const ClipVisionConfig&) const = default;
};

/// class CLIPTextConfig.
struct ClipTextConfig {
  std::int64_t vocab_size = 49408;
  std::int64_t hidden_size = 512;
  std::int64_t intermediate_size = 2048;
  std::int64_t num_hidden_layers = 12;
  std::int64_t num_attention_heads = 8;
  std::int64_t max_position_embeddings = 77;
  std::int64_t eos_token_id = 49407;  ///< 2 makes the text model pool by argmax (CLIPTextTransformer.forward)
  Activation hidden_act = Activation::quick_gelu;
  double attention_dropout = 0.0;

  bool operator==(const ClipTextConfig&) const = default;
};

/// class CLIPConfig.
struct ClipConfig {
  ClipTextConfig text;
  ClipVisionConfig vision;
  std::int64_t projection_dim = 512;

  bool operator==(const ClipConfig&) const = default;
};

ClipVisionConfig read_clip_vision_config(ConfigReader& reader);
/// The fields that the family's configs share.
ClipVisionConfig read_vision_sizes(ConfigReader& reader, const ClipVisionConfig& defaults);
ClipTextConfig read_clip_text_config(ConfigReader& reader);
ClipConfig read_clip_config(ConfigReader& reader);

}  // namespace oometer
