#pragma once

#include <vector>

#include "models/vit/vit.h"

/// transformers 5.23, models/segformer/modeling_segformer.py. Names and order of steps are that file's.
namespace oometer {

inline constexpr VitClassNames kSegformer{
    "SegformerModel", "",  "SegformerOverlapPatchEmbeddings", "SegformerLayer", "SegformerAttention", "SegformerMixMLP",
    "segformer",      true};

/// class SegformerConfig (models/segformer/configuration_segformer.py). `hidden_size`: of the last stage.
struct SegformerConfig : VitConfig {
  bool segments = false;  ///< ForSemanticSegmentation
  /// Of each stage.
  std::vector<std::int64_t> depths{2, 2, 2, 2}, sr_ratios{8, 4, 2, 1}, hidden_sizes{32, 64, 160, 256},
      patch_sizes{7, 3, 3, 3}, strides{4, 2, 2, 2}, num_heads{1, 2, 5, 8}, mlp_ratios{4, 4, 4, 4};
  double drop_path_rate = 0.1, classifier_dropout_prob = 0.1;
  std::int64_t decoder_hidden_size = 256;

  std::int64_t layers() const {
    std::int64_t sum = 0;
    for (const std::int64_t depth : depths) sum += depth;
    return sum;
  }
  /// Pixels each way behind a stage's patch embeddings, of as many before.
  std::int64_t side(std::size_t stage, std::int64_t before) const {
    return (before + 2 * (patch_sizes[stage] / 2) - patch_sizes[stage]) / strides[stage] + 1;
  }
  bool operator==(const SegformerConfig&) const = default;
};

std::unique_ptr<Model> build_segformer(Context& context, const SegformerConfig& config, const DataConfig& data,
                                       const ModelOptions& options);

}  // namespace oometer
