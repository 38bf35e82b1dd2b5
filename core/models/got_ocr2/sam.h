#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "config/activation.h"
#include "models/model.h"
#include "nn/module.h"

/// SAM's tower of images, as it is copied in transformers 5.23 (models/got_ocr2/modeling_got_ocr2.py,
/// models/deepseek_ocr2/modeling_deepseek_ocr2.py). Names and order of steps are those files'.
namespace oometer {

class ConfigReader;

/// What the classes of a family are called that are copies of SAM's.
struct SamClassNames {
  const char *layer, *attention, *mlp, *neck, *patch_embed, *layer_norm;
  /// Its attention by SDPA, and by two strided convolutions behind the neck; null: none.
  const char *sdpa_attention = nullptr, *proj = nullptr;
};

/// class GotOcr2VisionConfig (models/got_ocr2/configuration_got_ocr2.py), DeepseekOcr2SamVisionConfig.
struct SamConfig {
  const SamClassNames* names = nullptr;
  std::int64_t hidden_size = 768, output_channels = 256, num_hidden_layers = 12, num_attention_heads = 12;
  std::int64_t num_channels = 3, image_size = 1024, patch_size = 16, window_size = 14, mlp_dim = 3072;
  std::vector<std::int64_t> global_attn_indexes{2, 5, 8, 11};
  std::vector<std::int64_t> downsample_channels{};  ///< of `proj`'s two convolutions
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
  bool operator==(const SamConfig&) const = default;
};

/// Reads and validates as the class's own config and the modelling code would. `defaults`: with its names.
SamConfig read_sam_config(ConfigReader& reader, const SamConfig& defaults);
/// Bytes of about the largest tensor that it makes of so many images of that many pixels a side.
double largest_tensor_of(const SamConfig& config, std::int64_t images, std::int64_t pixels);

class SamEncoder {
 public:
  virtual ~SamEncoder() = default;
  /// [images, channels, rows, columns], of the neck or of what stands behind it.
  virtual Tensor operator()(const Tensor& pixel_values) const = 0;
  virtual std::size_t blocks() const = 0;  ///< checkpointable ones
};
std::unique_ptr<SamEncoder> make_sam_encoder(const Builder& builder, const SamConfig& config,
                                             const ModelOptions& options);

}  // namespace oometer
