#pragma once

#include <cstdint>
#include <optional>

#include "models/deepseek/config.h"
#include "models/kit/text_config.h"
#include "models/pixtral/config.h"

namespace oometer {

/// What a class is called, and its parts. LightOnOCR reads Qwen3 where Mistral 3 reads Mistral, and finds the tokens of
/// each image one number after another (models/lighton_ocr/modular_lighton_ocr.py).
struct Mistral3Class {
  const char *model_type, *class_name, *model, *tower, *projector, *projector_class, *norm, *patch_merger;
};
inline constexpr Mistral3Class kMistral3{"mistral3",
                                         "Mistral3ForConditionalGeneration",
                                         "Mistral3Model",
                                         "vision_tower",
                                         "multi_modal_projector",
                                         "Mistral3MultiModalProjector",
                                         "Mistral3RMSNorm",
                                         "Mistral3PatchMerger"},
    kLightOnOcr{
        "lighton_ocr",       "LightOnOcrForConditionalGeneration", "LightOnOcrModel",   "vision_encoder",
        "vision_projection", "LightOnOcrMultiModalProjector",      "LightOnOcrRMSNorm", "LightOnOcrPatchMerger"},
    kMistralLarge4{"mistral_large4",        "MistralLarge4ForConditionalGeneration",
                   "MistralLarge4Model",    "vision_tower",
                   "multi_modal_projector", "MistralLarge4MultiModalProjector",
                   "MistralLarge4RMSNorm",  "MistralLarge4PatchMerger"};

/// transformers 5.23, models/mistral3/configuration_mistral3.py, class Mistral3Config: Pixtral's tower, and Mistral's
/// or Ministral 3's text; and
/// models/lighton_ocr, class LightOnOcrConfig.
struct Mistral3Config {
  const Mistral3Class* of = &kMistral3;
  PixtralVisionConfig vision;
  TextConfig text;
  bool is_ministral3 = false;
  std::optional<DeepseekConfig> deepseek{};  ///< Mistral Large 4's text, in its place
  std::int64_t spatial_merge_size = 2;
  bool projector_bias = false;
  Activation projector_hidden_act = Activation::gelu;
  bool tie_word_embeddings = true;

  /// Pixels along a side of what becomes one token of the language model.
  std::int64_t cell() const { return vision.patch_size * spatial_merge_size; }

  bool operator==(const Mistral3Config&) const = default;
};

Mistral3Config read_mistral3_config(ConfigReader& reader, const Mistral3Class& of);

}  // namespace oometer
