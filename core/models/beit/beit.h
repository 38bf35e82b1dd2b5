#pragma once

#include "models/vit/vit.h"

/// transformers 5.23, models/beit/modeling_beit.py. Names and order of steps are that file's.
namespace oometer {

inline constexpr VitClassNames kBeit{
    "BeitModel", "BeitEmbeddings", "BeitPatchEmbeddings", "BeitLayer", "BeitAttention", "BeitMLP", "beit", true};

/// class BeitConfig (models/beit/configuration_beit.py): what it has beside ViTConfig's fields.
struct BeitConfig : VitConfig {
  bool use_relative_position_bias = false;
  double layer_scale_init_value = 0.1;
  double drop_path_rate = 0.1;
  bool use_mean_pooling = true;

  std::int64_t window() const { return image_size / patch_size; }  ///< patches each way
  std::int64_t num_relative_distance() const {
    return checked_product(2 * window() - 1, 2 * window() - 1) +
           3;  // of [CLS] to tokens, of them to it, of it to itself
  }
  bool operator==(const BeitConfig&) const = default;
};

std::unique_ptr<Model> build_beit(Context& context, const BeitConfig& config, const DataConfig& data,
                                  const ModelOptions& options);

}  // namespace oometer
