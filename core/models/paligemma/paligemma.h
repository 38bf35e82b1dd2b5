#pragma once

#include <memory>

#include "models/clip/config.h"
#include "models/kit/text_config.h"
#include "models/model.h"

namespace oometer {

/// transformers 5.23, models/paligemma/configuration_paligemma.py, class PaliGemmaConfig: SigLIP's tower and the text
/// of Gemma (PaliGemma) or Gemma 2 (PaliGemma 2).
struct PaliGemmaConfig {
  ClipVisionConfig vision;
  TextConfig text;
  bool has_gemma2 = false;
  std::int64_t projection_dim = 2048;
  bool tie_word_embeddings = true;

  bool operator==(const PaliGemmaConfig&) const = default;
};

PaliGemmaConfig read_paligemma_config(ConfigReader& reader);

/// PaliGemmaForConditionalGeneration (models/paligemma/modeling_paligemma.py).
std::unique_ptr<Model> build_paligemma(Context& context, const PaliGemmaConfig& config, const DataConfig& data,
                                       const ModelOptions& options);

}  // namespace oometer
