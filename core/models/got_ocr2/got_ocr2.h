#pragma once

#include <cstdint>
#include <memory>

#include "models/got_ocr2/sam.h"
#include "models/llama/config.h"
#include "models/model.h"

/// transformers 5.23, models/got_ocr2/modeling_got_ocr2.py. Names and order of steps are that file's.
namespace oometer {

/// class GotOcr2Config.
struct GotOcr2Config {
  SamConfig vision;
  LlamaConfig text;
  bool tie_word_embeddings = true;

  std::int64_t tokens_per_image() const {  ///< two convolutions of stride 2
    const auto halved = [](std::int64_t side) { return (side - 1) / 2 + 1; };
    const std::int64_t left = halved(halved(vision.side()));
    return left * left;
  }
  bool operator==(const GotOcr2Config&) const = default;
};

/// GotOcr2ForConditionalGeneration.
std::unique_ptr<Model> build_got_ocr2(Context& context, const GotOcr2Config& config, const DataConfig& data,
                                      const ModelOptions& options);

}  // namespace oometer
