#pragma once

#include <cstdint>
#include <memory>

#include "models/deepseek/config.h"
#include "models/got_ocr2/sam.h"
#include "models/kit/text_config.h"
#include "models/model.h"

/// transformers 5.23, models/deepseek_ocr2/modeling_deepseek_ocr2.py. Names and order of steps are that file's.
namespace oometer {

/// class DeepseekOcr2Config (models/deepseek_ocr2/configuration_deepseek_ocr2.py).
struct DeepseekOcr2Config {
  SamConfig sam;
  LlamaConfig encoder;          ///< behind SAM, of the image's patches and of queries
  TextConfig text;              ///< Llama's attention
  DeepseekConfig text_experts;  ///< and DeepSeek-V2's experts, where `text.experts` has some
  bool tie_word_embeddings = false;

  /// The processor's square views of an image: the whole of it, and tiles of three quarters of that.
  std::int64_t tile_size() const { return sam.image_size / 4 * 3; }
  /// Behind SAM's convolutions.
  std::int64_t patches(std::int64_t pixels) const {
    const auto halved = [](std::int64_t side) { return (side - 1) / 2 + 1; };
    const std::int64_t left = halved(halved(pixels / sam.patch_size));
    return left * left;
  }
  static std::int64_t queries(std::int64_t patches) { return patches <= 144 ? 144 : 256; }
  /// Of an image with so many tiles.
  std::int64_t tokens(std::int64_t tiles) const {
    return queries(patches(sam.image_size)) + tiles * queries(patches(tile_size())) + 1;
  }
  bool operator==(const DeepseekOcr2Config&) const = default;
};

/// DeepseekOcr2ForConditionalGeneration.
std::unique_ptr<Model> build_deepseek_ocr2(Context& context, const DeepseekOcr2Config& config, const DataConfig& data,
                                           const ModelOptions& options);

}  // namespace oometer
