#pragma once

#include <vector>

#include "models/kit/decoder_layer.h"
#include "models/kit/grids.h"
#include "models/llama/llama.h"
#include "models/model.h"
#include "models/pixtral/config.h"
#include "nn/block_stack.h"

/// transformers 5.23, models/pixtral/modeling_pixtral.py. Names and order of steps are that file's.
namespace oometer {

/// How patches of one image are kept from those of others: by a mask, with flash-attn by where each image begins.
struct PatchesToAttend {
  Tensor attention_mask;
  PatchSequences images;
};

struct PixtralAttention {
  PixtralAttention(const Builder& builder, const PixtralVisionConfig& config, AttentionKind attention);
  AttentionOutputs operator()(const Tensor& hidden_states, const PatchesToAttend& patches,
                              const PositionEmbeddings& positions) const;

  Linear k_proj, v_proj, q_proj, o_proj;
  std::int64_t head_dim = 0;
  AttentionCall call;
  ModuleId module = 0;
};

struct PixtralAttentionLayer {
  PixtralAttentionLayer(const Builder& builder, const PixtralVisionConfig& config, AttentionKind attention);
  Tensor operator()(const Tensor& hidden_states, const PatchesToAttend& patches,
                    const PositionEmbeddings& positions) const;

  LlamaRMSNorm attention_norm;
  LlamaMLP feed_forward;
  PixtralAttention attention;
  LlamaRMSNorm ffn_norm;
  ModuleId module = 0;
};

/// Patches of each image without padding: its own height and width are multiples of patch_size.
std::vector<std::int64_t> pixtral_patches(const DataConfig& data, std::int64_t patch_size);

/// PixtralVisionModel: the patches of all images are one sequence, masked but for each image's own.
struct PixtralVisionModel {
  PixtralVisionModel() = default;
  PixtralVisionModel(const Builder& builder, const PixtralVisionConfig& config, const ModelOptions& options);
  /// pixel_values [images, channels, height, width], padded to the largest: last_hidden_state [1, patches, hidden].
  Tensor operator()(const Tensor& pixel_values, const DataConfig& data) const;

  Conv2d patch_conv;
  LlamaRMSNorm ln_pre;
  std::vector<PixtralAttentionLayer> layers;
  Tensor inv_freq, original_inv_freq;
  CheckpointingConfig checkpointing;
  BlockStack stack;
  ModuleId module = 0, transformer = 0, rotary = 0;
};

}  // namespace oometer
