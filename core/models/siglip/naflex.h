#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "models/masking.h"
#include "models/siglip/config.h"
#include "models/siglip/siglip.h"

/// transformers 5.23, models/siglip2/modeling_siglip2.py: images of any shape, each padded to as many patches. Names
/// and order of steps are that file's.
namespace oometer {

/// Patches of an image, or of a tile of one: rows and columns.
using Cells = std::pair<std::int64_t, std::int64_t>;

struct Siglip2VisionEmbeddings {
  Siglip2VisionEmbeddings() = default;
  Siglip2VisionEmbeddings(const Builder& builder, const ClipVisionConfig& config, std::int64_t num_positions);
  Tensor operator()(const Tensor& pixel_values, const std::vector<Cells>& spatial_shapes) const;
  /// [images, patches, d], stretched to each image's cells; what is behind them is padding.
  static Tensor resize_positional_embeddings(Tensor positional_embeddings, const std::vector<Cells>& spatial_shapes,
                                             std::int64_t max_length);

  Linear patch_embedding;
  Embedding position_embedding;
  std::int64_t side = 0;
  CheckpointingConfig checkpointing;  ///< see require_input_grad
  ModuleId module = 0;
};

struct Siglip2VisionModel {
  Siglip2VisionModel() = default;
  Siglip2VisionModel(const Builder& builder, const ClipVisionConfig& config, std::int64_t num_positions,
                     const ModelOptions& options);
  ClipVisionOutput operator()(const Tensor& pixel_values, const Tensor& pixel_attention_mask,
                              const std::vector<Cells>& spatial_shapes) const;

  Siglip2VisionEmbeddings embeddings;
  ClipEncoder encoder;
  LayerNorm post_layernorm;
  SiglipMultiheadAttentionPoolingHead head;
  bool use_head = false;
  MaskedBy masked = MaskedBy::sdpa;
  ModuleId module = 0;
};

}  // namespace oometer
