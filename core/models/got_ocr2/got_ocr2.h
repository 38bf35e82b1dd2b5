#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "models/llama/config.h"
#include "models/model.h"

/// transformers 5.23, models/got_ocr2/modeling_got_ocr2.py. Names and order of steps are that file's.
namespace oometer {

class ConfigReader;

/// class GotOcr2VisionConfig (models/got_ocr2/configuration_got_ocr2.py): SAM's tower.
struct GotOcr2VisionConfig {
  std::int64_t hidden_size = 768, output_channels = 256, num_hidden_layers = 12, num_attention_heads = 12;
  std::int64_t num_channels = 3, image_size = 1024, patch_size = 16, window_size = 14, mlp_dim = 3072;
  std::vector<std::int64_t> global_attn_indexes{2, 5, 8, 11};
  Activation hidden_act = Activation::gelu;
  double attention_dropout = 0;
  bool qkv_bias = true, use_abs_pos = true, use_rel_pos = true;

  std::int64_t side() const { return image_size / patch_size; }  ///< in patches
  std::int64_t head_dim() const { return hidden_size / num_attention_heads; }
  /// Of a layer's attention; 0: it sees the whole image.
  std::int64_t window_of(std::int64_t layer) const {
    const auto found = std::find(global_attn_indexes.begin(), global_attn_indexes.end(), layer);
    return found == global_attn_indexes.end() ? window_size : 0;
  }
  bool operator==(const GotOcr2VisionConfig&) const = default;
};

/// class GotOcr2Config.
struct GotOcr2Config {
  GotOcr2VisionConfig vision;
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
