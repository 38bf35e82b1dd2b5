#pragma once

#include <cstdint>

#include "models/llama/config.h"

namespace oometer {

/// What the classes are called: Qianfan-OCR's (models/qianfan_ocr) are copies of InternVL's, but for the tower's
/// layers, which have no encoder around them, and drop paths.
struct InternVLFamily {
  const char *model_type, *class_name, *model, *projector, *vision_model, *vision_embeddings, *patch_embeddings,
      *vision_layer, *vision_attention, *vision_mlp, *vision_norm, *drop_path;
  bool is_qianfan = false;
};
inline constexpr InternVLFamily kInternVL{"internvl",
                                          "InternVLForConditionalGeneration",
                                          "InternVLModel",
                                          "InternVLMultiModalProjector",
                                          "InternVLVisionModel",
                                          "InternVLVisionEmbeddings",
                                          "InternVLVisionPatchEmbeddings",
                                          "InternVLVisionLayer",
                                          "InternVLVisionAttention",
                                          "InternVLVisionMLP",
                                          "InternVLVisionRMSNorm",
                                          ""};
inline constexpr InternVLFamily kQianfanOcr{"qianfan_ocr",
                                            "QianfanOCRForConditionalGeneration",
                                            "QianfanOCRModel",
                                            "QianfanOCRMultiModalProjector",
                                            "QianfanOCRVisionModel",
                                            "QianfanOCRVisionEmbeddings",
                                            "QianfanOCRVisionPatchEmbeddings",
                                            "QianfanOCRVisionLayer",
                                            "QianfanOCRVisionAttention",
                                            "QianfanOCRVisionMLP",
                                            "QianfanOCRVisionRMSNorm",
                                            "QianfanOCRDropPath",
                                            true};

/// transformers 5.23, models/internvl/configuration_internvl.py, class InternVLVisionConfig: the fields that decide
/// memory.
struct InternVisionConfig {
  const InternVLFamily* family = &kInternVL;
  std::int64_t hidden_size = 1024;
  std::int64_t intermediate_size = 4096;
  std::int64_t num_hidden_layers = 24;
  std::int64_t num_attention_heads = 16;
  std::int64_t num_channels = 3;
  std::int64_t image_size = 448;  ///< pixels of a tile's side
  std::int64_t patch_size = 14;
  Activation hidden_act = Activation::gelu;
  bool attention_bias = false;
  bool use_qk_norm = false;
  bool rms_norm = false;  ///< norm_type
  bool use_mask_token = false;
  bool has_positions = true;     ///< use_absolute_position_embeddings
  bool use_mean_pooling = true;  ///< then it has no last norm
  double hidden_dropout_prob = 0, attention_dropout = 0, projection_dropout = 0;
  double drop_path_rate = 0;  ///< of the last layer; Qianfan-OCR's

  std::int64_t patches_per_side() const { return image_size / patch_size; }
  /// With the class token.
  std::int64_t num_positions() const { return patches_per_side() * patches_per_side() + 1; }

  bool operator==(const InternVisionConfig&) const = default;
};

/// class InternVLConfig.
struct InternVLConfig {
  InternVisionConfig vision;
  LlamaConfig text;
  std::int64_t shuffle = 2;                ///< 1 / downsample_ratio
  std::int64_t vision_feature_layer = -1;  ///< below the last one: of [embeddings, layer 1, ..., layer N]
  bool drops_class_token = true;           ///< vision_feature_select_strategy
  Activation projector_hidden_act = Activation::gelu;
  bool tie_word_embeddings = true;

  /// Tokens of the language model that one tile takes.
  std::int64_t tokens_per_tile() const {
    const std::int64_t side = vision.patches_per_side() / shuffle;
    return side * side;
  }
  /// Tiles of an image, the whole image scaled down among them: get_optimal_tiled_canvas of one to twelve tiles
  /// (models/got_ocr2/image_processing_got_ocr2.py, with InternVLProcessor's crop_to_patches).
  std::int64_t tiles(std::int64_t height, std::int64_t width) const;

  bool operator==(const InternVLConfig&) const = default;
};

InternVLConfig read_internvl_config(ConfigReader& reader, const InternVLFamily& family);

}  // namespace oometer
