#pragma once

#include <cstdint>

#include "config/activation.h"
#include "models/kit/text_config.h"

namespace oometer {

class ConfigReader;

inline constexpr LlamaClassNames kGlm4vText{"Glm4vForConditionalGeneration",
                                            "Glm4vTextModel",
                                            "Glm4vTextDecoderLayer",
                                            "Glm4vTextAttention",
                                            "Glm4vTextMLP",
                                            "Glm4vRMSNorm",
                                            "Glm4vTextRotaryEmbedding"},
    kGlmOcrText{"GlmOcrForConditionalGeneration",
                "GlmOcrTextModel",
                "GlmOcrTextDecoderLayer",
                "GlmOcrTextAttention",
                "GlmOcrTextMLP",
                "GlmOcrRMSNorm",
                "GlmOcrTextRotaryEmbedding"},
    kGlm4vMoeText{"Glm4vMoeForConditionalGeneration",
                  "Glm4vMoeTextModel",
                  "Glm4vMoeTextDecoderLayer",
                  "Glm4vMoeTextAttention",
                  "Glm4vMoeTextMLP",
                  "Glm4vMoeTextRMSNorm",
                  "Glm4vMoeTextRotaryEmbedding"};

/// What the classes of a tower are called.
struct Glm4vTowerNames {
  const char *model, *patch_embed, *rotary_embedding, *block, *attention, *mlp, *merger, *rms_norm;
  const char* embeddings = "";  ///< empty: there are none
};
inline constexpr Glm4vTowerNames kGlm4vTower{
    "Glm4vVisionModel",       "Glm4vVisionPatchEmbed", "Glm4vVisionRotaryEmbedding",
    "Glm4vVisionBlock",       "Glm4vVisionAttention",  "Glm4VisionMlp",
    "Glm4vVisionPatchMerger", "Glm4vRMSNorm",          "Glm4vVisionEmbeddings"},
    kGlm4vMoeTower{"Glm4vMoeVisionModel",       "Glm4vMoeVisionPatchEmbed", "Glm4vMoeVisionRotaryEmbedding",
                   "Glm4vMoeVisionBlock",       "Glm4vMoeVisionAttention",  "Glm4vMoeisionMlp",
                   "Glm4vMoeVisionPatchMerger", "Glm4vMoeRMSNorm",          "Glm4vMoeVisionEmbeddings"},
    kGlmOcrTower{"GlmOcrVisionModel",     "GlmOcrVisionPatchEmbed", "GlmOcrVisionRotaryEmbedding", "GlmOcrVisionBlock",
                 "GlmOcrVisionAttention", "GlmOcrVisionMlp",        "GlmOcrVisionPatchMerger",     "GlmOcrRMSNorm"};

/// What a class is called. GLM-4.6V has GLM-4V's tower and language model (models/glm46v/modular_glm46v.py), GLM-OCR
/// classes of its own (models/glm_ocr/modular_glm_ocr.py); GLM-4.5V has a copy of the tower with GLM-4.5's layers
/// (models/glm4v_moe/modular_glm4v_moe.py).
struct Glm4vClass {
  const char *model_type, *class_name, *model;
  const Glm4vTowerNames* tower = &kGlm4vTower;
  const LlamaClassNames* text = &kGlm4vText;

  bool is_ocr() const { return tower == &kGlmOcrTower; }
  bool has_experts() const { return text == &kGlm4vMoeText; }
};
inline constexpr Glm4vClass kGlm4v{"glm4v", "Glm4vForConditionalGeneration", "Glm4vModel"},
    kGlm46V{"glm46v", "Glm46VForConditionalGeneration", "Glm46VModel"},
    kGlmOcr{"glm_ocr", "GlmOcrForConditionalGeneration", "GlmOcrModel", &kGlmOcrTower, &kGlmOcrText},
    kGlm4vMoe{"glm4v_moe", "Glm4vMoeForConditionalGeneration", "Glm4vMoeModel", &kGlm4vMoeTower, &kGlm4vMoeText};

/// transformers 5.23, models/glm4v/configuration_glm4v.py, class Glm4vVisionConfig: the fields that decide memory.
struct Glm4vVisionConfig {
  const Glm4vClass* of = &kGlm4v;
  std::int64_t depth = 24;
  std::int64_t hidden_size = 1536;
  std::int64_t intermediate_size = 13696;
  std::int64_t num_heads = 12;
  std::int64_t in_channels = 3;
  std::int64_t image_size = 336;  ///< pixels, of the square whose patches have learned positions
  std::int64_t patch_size = 14;
  std::int64_t spatial_merge_size = 2;
  std::int64_t temporal_patch_size = 2;  ///< frames
  std::int64_t out_hidden_size = 4096;
  double attention_dropout = 0;
  bool attention_bias = false;
  Activation hidden_act = Activation::silu;

  /// Of the blocks, and of the merger (context_dim).
  std::int64_t mlp_size() const { return of->is_ocr() ? intermediate_size : out_hidden_size; }
  std::int64_t merger_size() const { return of->is_ocr() ? out_hidden_size * in_channels : intermediate_size; }
  std::int64_t merge_unit() const { return spatial_merge_size * spatial_merge_size; }
  /// Of the square, along a side.
  std::int64_t side() const { return image_size / patch_size; }
  /// Elements of a patch.
  std::int64_t patch_elements() const { return in_channels * temporal_patch_size * patch_size * patch_size; }

  bool operator==(const Glm4vVisionConfig&) const = default;
};

/// class Glm4vConfig of the same file, Glm46VConfig and GlmOcrConfig.
struct Glm4vConfig {
  const Glm4vClass* of = &kGlm4v;
  Glm4vVisionConfig vision;
  TextConfig text;
  bool tie_word_embeddings = false;

  bool operator==(const Glm4vConfig&) const = default;
};

Glm4vConfig read_glm4v_config(ConfigReader& reader, const Glm4vClass& of);
/// class Glm4vTextConfig.
TextConfig read_glm4v_text(ConfigReader& reader, const Glm4vClass& of);
/// mrope_section: halves of what is rotated.
void check_glm4v_sections(ConfigReader& reader, const TextConfig& config);
/// class Glm4vMoeTextConfig.
TextConfig read_glm4v_moe_text(ConfigReader& reader);

}  // namespace oometer
