#pragma once

#include "models/kit/text_config.h"
#include "models/qwen2_vl/config.h"

namespace oometer {

inline constexpr QwenVLClassNames kExaone45ClassNames{{"Exaone4_5_ForConditionalGeneration", "", "", "", "", "", ""},
                                                      "Exaone4_5_Model",
                                                      "Exaone4_5_VisionModel",
                                                      "Exaone4_5_PatchEmbed",
                                                      "Exaone4_5_VisionRotaryEmbedding",
                                                      "Exaone4_5_VisionBlock",
                                                      "Exaone4_5_RMSNorm",
                                                      "Exaone4_5_VisionAttention",
                                                      "Exaone4_5_MLP",
                                                      "Exaone4_5_PatchMerger",
                                                      true};

/// transformers 5.23, models/exaone4_5/configuration_exaone4_5.py, class Exaone4_5_Config: Qwen2.5-VL's tower with
/// fewer heads of keys and values, and EXAONE 4's text.
struct Exaone45Config {
  QwenVLConfig tower;  ///< its names and `vision`
  TextConfig text;
  bool tie_word_embeddings = false;

  bool operator==(const Exaone45Config&) const = default;
};

Exaone45Config read_exaone4_5_config(ConfigReader& reader);

}  // namespace oometer
