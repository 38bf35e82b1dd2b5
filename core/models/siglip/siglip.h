#pragma once

#include <functional>

#include "models/clip/clip.h"

/// transformers 5.23, models/siglip/modeling_siglip.py. Names and order of steps are that file's.
namespace oometer {

struct SiglipVisionEmbeddings {
  SiglipVisionEmbeddings() = default;
  SiglipVisionEmbeddings(const Builder& builder, const ClipVisionConfig& config);
  Tensor operator()(const Tensor& pixel_values) const;

  Conv2d patch_embedding;
  Embedding position_embedding;
  Tensor position_ids;
  CheckpointingConfig checkpointing;  ///< see require_input_grad
  ModuleId module = 0;
};

/// Attention of one trained query, torch.nn.MultiheadAttention's, and a MLP: whoever takes hidden states does not need
/// it, and runs it.
struct SiglipMultiheadAttentionPoolingHead {
  SiglipMultiheadAttentionPoolingHead() = default;
  SiglipMultiheadAttentionPoolingHead(const Builder& builder, const ClipLayerConfig& config);
  /// `make_mask`: of what the repeated query sees, [b * heads, 1, s], or null; it is called with that query.
  /// `patches_mask`: [b, s], of which MultiheadAttention gets the opposite as its key_padding_mask; null: it gets none.
  Tensor operator()(const Tensor& hidden_state, const std::function<Tensor(const Tensor& probes)>& make_mask = nullptr,
                    const Tensor& patches_mask = {}) const;

  Tensor probe, in_proj_weight, in_proj_bias;
  Linear out_proj;
  LayerNorm layernorm;
  ClipMLP mlp;
  std::int64_t num_heads = 0;
  ModuleId attention = 0, module = 0;
};

struct SiglipVisionModel {
  SiglipVisionModel() = default;
  SiglipVisionModel(const Builder& builder, const ClipVisionConfig& config, const ModelOptions& options);
  ClipVisionOutput operator()(const Tensor& pixel_values, const std::vector<std::int64_t>& wanted = {}) const;

  SiglipVisionEmbeddings embeddings;
  ClipEncoder encoder;
  LayerNorm post_layernorm;
  SiglipMultiheadAttentionPoolingHead head;
  bool use_head = false;
  ModuleId module = 0;
};

}  // namespace oometer
