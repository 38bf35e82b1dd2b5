#pragma once

#include <vector>

#include "models/vit/vit.h"

/// transformers 5.23, models/swin/modeling_swin.py. Names and order of steps are that file's.
namespace oometer {

inline constexpr VitClassNames kSwin{
    "SwinModel", "SwinEmbeddings", "SwinPatchEmbeddings", "SwinLayer", "SwinAttention", "SwinMLP", "swin", true};

/// class SwinConfig (models/swin/configuration_swin.py). `hidden_size`, as there: channels behind the last stage.
struct SwinConfig : VitConfig {
  std::int64_t embed_dim = 96;
  std::vector<std::int64_t> depths{2, 2, 6, 2}, num_heads{3, 6, 12, 24};  ///< of each stage
  std::int64_t window_size = 7;                                           ///< patches each way
  double mlp_ratio = 4;
  double drop_path_rate = 0.1;
  bool use_absolute_embeddings = false;

  /// Patches each way in a stage, and channels of each.
  std::int64_t side(std::size_t stage) const { return (image_size / patch_size) >> stage; }
  std::int64_t dim(std::size_t stage) const { return embed_dim << stage; }
  bool operator==(const SwinConfig&) const = default;
};

std::unique_ptr<Model> build_swin(Context& context, const SwinConfig& config, const DataConfig& data,
                                  const ModelOptions& options);

}  // namespace oometer
