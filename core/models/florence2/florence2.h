#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "models/bart/bart.h"
#include "models/model.h"

namespace oometer {

/// class Florence2VisionConfig (transformers 5.23, models/florence2/configuration_florence2.py): of each stage.
struct DavitConfig {
  std::int64_t in_channels = 3, window_size = 12;
  std::vector<std::int64_t> depths{1, 1, 9, 1}, patch_size{7, 3, 3, 3}, patch_stride{4, 2, 2, 2},
      patch_padding{3, 1, 1, 1}, patch_prenorm{0, 1, 1, 1}, embed_dim{128, 256, 512, 1024}, num_heads{4, 8, 16, 32},
      num_groups{4, 8, 16, 32};
  double drop_path_rate = 0.1, mlp_ratio = 4;
  bool qkv_bias = true;
  Activation activation = Activation::gelu;
  std::int64_t projection_dim = 1024, max_temporal_embeddings = 100, max_position_embeddings = 50;

  std::size_t stages() const { return embed_dim.size(); }
  std::int64_t intermediate(std::size_t stage) const {
    return static_cast<std::int64_t>(static_cast<double>(embed_dim[stage]) * mlp_ratio);
  }
  /// What a stage leaves of a side of its input.
  std::int64_t side(std::size_t stage, std::int64_t side) const {
    return (side + 2 * patch_padding[stage] - patch_size[stage]) / patch_stride[stage] + 1;
  }
  bool operator==(const DavitConfig&) const = default;
};

struct Florence2Config {
  DavitConfig vision;
  BartConfig text;

  bool operator==(const Florence2Config&) const = default;
};

/// Florence2ForConditionalGeneration (models/florence2/modeling_florence2.py).
std::unique_ptr<Model> build_florence2(Context& context, const Florence2Config& config, const DataConfig& data,
                                       const ModelOptions& options);

}  // namespace oometer
