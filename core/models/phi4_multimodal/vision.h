#pragma once

#include "models/masking.h"
#include "models/model.h"
#include "models/phi4_multimodal/config.h"
#include "models/siglip/siglip.h"

/// Images in transformers 5.23, models/phi4_multimodal/modeling_phi4_multimodal.py. Names and order of steps are that
/// file's.
namespace oometer {

struct Phi4VisionEmbeddings {
  Phi4VisionEmbeddings() = default;
  Phi4VisionEmbeddings(const Builder& builder, const ClipVisionConfig& config);
  Tensor operator()(const Tensor& pixel_values, const Tensor& patch_attention_mask) const;

  Conv2d patch_embedding;
  Embedding position_embedding;
  std::int64_t num_patches_per_side = 0;
  CheckpointingConfig checkpointing;  ///< see require_input_grad
  ModuleId module = 0;
};

struct Phi4VisionModel {
  Phi4VisionModel() = default;
  Phi4VisionModel(const Builder& builder, const ClipVisionConfig& config, const ModelOptions& options);
  /// `rows`: of each crop, its patches that are no padding. `layer`: whose hidden states are asked for.
  ClipVisionOutput operator()(const Tensor& pixel_values, Tensor patch_attention_mask, const Rows& rows,
                              std::int64_t layer) const;

  Phi4VisionEmbeddings embeddings;
  ClipEncoder encoder;
  LayerNorm post_layernorm;
  SiglipMultiheadAttentionPoolingHead head;
  MaskedBy masked = MaskedBy::sdpa;
  ModuleId module = 0;
};

/// A batch's images, as the processor gives them.
struct Phi4Images {
  Tensor image_pixel_values;    ///< [images, crops and the whole image, channels, side, side]
  Tensor image_sizes;           ///< [images, 2]
  Tensor image_attention_mask;  ///< [images, crops, patches, patches]
  std::vector<Phi4Crops> cut;   ///< of each
};

struct Phi4ImageEmbedding {
  Phi4ImageEmbedding() = default;
  Phi4ImageEmbedding(const Builder& builder, const Phi4Config& config, const ModelOptions& options);
  Tensor operator()(const Tensor& input_ids, const Tensor& inputs_embeds, const Phi4Images& images) const;
  Tensor get_img_features(const Tensor& img_embeds, const Tensor& attention_mask, const Phi4Images& images) const;

  Phi4VisionModel img_processor;
  Linear img_projection_up, img_projection_down;
  Tensor global_img_feature_extensor, sub_img_feature_extensor;
  std::int64_t layer_idx = -2, patches = 0;
  double drop = 0;
  ModuleId module = 0;
};

/// inputs_embeds with `values`, [tokens, hidden], in the places of the `tokens` of input_ids that are such.
Tensor put_at_tokens(const Tensor& inputs_embeds, const Tensor& positions, const Tensor& values);
/// torch.nonzero(input_ids == token, as_tuple=True): both of its tensors in one.
Tensor positions_of_tokens(const Tensor& input_ids, std::int64_t tokens);

}  // namespace oometer
