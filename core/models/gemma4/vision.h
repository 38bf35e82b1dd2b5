#pragma once

#include <memory>
#include <vector>

#include "models/gemma4/config.h"
#include "models/kit/text_layer.h"
#include "models/masking.h"
#include "nn/block_stack.h"

/// transformers 5.23, models/gemma4/modeling_gemma4.py: the tower that sees images. Names and order of steps are that
/// file's.
namespace oometer {

/// A Linear whose input and output are clipped to what the checkpoint says (use_clipped_linears).
struct Gemma4ClippableLinear {
  Gemma4ClippableLinear() = default;
  Gemma4ClippableLinear(const Builder& builder, std::int64_t in_features, std::int64_t out_features, bool clips);
  Tensor operator()(const Tensor& hidden_states) const;

  Linear linear;
  bool use_clipped_linears = false;
  ModuleId module = 0;
};

/// All images are padded to as many patches.
struct Gemma4VisionModel {
  Gemma4VisionModel() = default;
  Gemma4VisionModel(const Builder& builder, const Gemma4VisionConfig& config, const ModelOptions& options);
  /// pixel_values [images, max patches, elements], pixel_position_ids [images, max patches, 2], of which the first
  /// `patches` are no padding: last_hidden_state [tokens of all images, hidden].
  Tensor operator()(const Tensor& pixel_values, const Tensor& pixel_position_ids, std::int64_t patches) const;

 private:
  Tensor embed_patches(const Tensor& pixel_values, const Tensor& pixel_position_ids,
                       const Tensor& padding_positions) const;
  Tensor encode(const Tensor& inputs_embeds, const Tensor& attention_mask, const Tensor& pixel_position_ids,
                std::int64_t patches) const;
  /// What it gives, and which of it is no padding.
  std::pair<Tensor, Tensor> pool(const Tensor& hidden_states, const Tensor& pixel_position_ids,
                                 const Tensor& padding_positions, std::int64_t output_length) const;

  Gemma4VisionConfig config_;
  Linear input_proj_;
  Tensor position_embedding_table_, inv_freq_, original_inv_freq_, std_bias_, std_scale_;
  std::vector<std::unique_ptr<TextLayer>> layers_;
  BlockStack stack_;
  CheckpointingConfig checkpointing_;
  MaskedBy masked_ = MaskedBy::sdpa;
  ModuleId module_ = 0, patch_embedder_ = 0, encoder_ = 0, rotary_emb_ = 0, pooler_ = 0;

 public:
  std::size_t num_layers() const { return layers_.size(); }
};

}  // namespace oometer
