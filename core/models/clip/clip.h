#pragma once

#include <vector>

#include "models/clip/config.h"
#include "models/masking.h"
#include "models/model.h"
#include "nn/block_stack.h"
#include "nn/module.h"

/// transformers 5.23, models/clip/modeling_clip.py. Names and order of steps are that file's.
namespace oometer {

/// What the layers of both towers share: one config's sizes.
struct ClipLayerConfig {
  std::int64_t hidden_size = 0, intermediate_size = 0, num_attention_heads = 0;
  Activation hidden_act = Activation::quick_gelu;
  AttentionCall call;
  const VisionFamily* family = &kClipVision;
};

struct ClipAttention {
  ClipAttention() = default;
  ClipAttention(const Builder& builder, const ClipLayerConfig& config);
  AttentionOutputs operator()(const Tensor& hidden_states, const Tensor& attention_mask) const;
  Tensor by_bmm(const Tensor& hidden_states, const Tensor& attention_mask) const;

  Linear k_proj, v_proj, q_proj, out_proj;
  std::int64_t head_dim = 0;
  bool projects_first = true;
  AttentionCall call;
  ModuleId module = 0;
};

struct ClipMLP {
  ClipMLP() = default;
  ClipMLP(const Builder& builder, const ClipLayerConfig& config);
  Tensor operator()(const Tensor& hidden_states) const;

  Linear fc1, fc2;
  Activation activation_fn = Activation::quick_gelu;
  ModuleId module = 0;
};

struct ClipEncoderLayer {
  ClipEncoderLayer() = default;
  ClipEncoderLayer(const Builder& builder, const ClipLayerConfig& config);
  Tensor operator()(const Tensor& hidden_states, const Tensor& attention_mask) const;

  ClipAttention self_attn;
  LayerNorm layer_norm1;
  ClipMLP mlp;
  LayerNorm layer_norm2;
  ModuleId module = 0;
};

/// A vision config's layers, and a text config's.
ClipLayerConfig vision_layers(const ClipVisionConfig& config, AttentionKind attention);
ClipLayerConfig text_layers(const ClipTextConfig& config, const VisionFamily& family, AttentionKind attention,
                            bool causal);

struct ClipEncoder {
  ClipEncoder() = default;
  ClipEncoder(const Builder& builder, const ClipLayerConfig& config, std::int64_t num_hidden_layers,
              const CheckpointingConfig& checkpointing);
  /// `captured`: for each wanted index of [input, layer 1, ..., layer N] its hidden state.
  Tensor operator()(const Tensor& inputs_embeds, const Tensor& attention_mask, const std::vector<std::int64_t>& wanted,
                    TensorList& captured) const;

  std::vector<ClipEncoderLayer> layers;
  BlockStack blocks;
  CheckpointingConfig checkpointing;
  ModuleId module = 0;
};

struct ClipVisionEmbeddings {
  ClipVisionEmbeddings() = default;
  ClipVisionEmbeddings(const Builder& builder, const ClipVisionConfig& config);
  Tensor operator()(const Tensor& pixel_values) const;

  Tensor class_embedding;
  Conv2d patch_embedding;
  Embedding position_embedding;
  Tensor position_ids;
  CheckpointingConfig checkpointing;  ///< where the whole model's main input is text: see require_input_grad
  ModuleId module = 0;
};

struct ClipVisionOutput {
  Tensor last_hidden_state, pooler_output;
  TensorList hidden_states;  ///< those asked for
};

struct ClipVisionModel {
  ClipVisionModel() = default;
  ClipVisionModel(const Builder& builder, const ClipVisionConfig& config, const ModelOptions& options);
  ClipVisionOutput operator()(const Tensor& pixel_values, const std::vector<std::int64_t>& wanted = {}) const;

  ClipVisionEmbeddings embeddings;
  LayerNorm pre_layrnorm;
  ClipEncoder encoder;
  LayerNorm post_layernorm;
  ModuleId module = 0;
};

/// CLIPTextEmbeddings, SiglipTextEmbeddings
struct ClipTextEmbeddings {
  ClipTextEmbeddings() = default;
  ClipTextEmbeddings(const Builder& builder, const ClipTextConfig& config);
  Tensor operator()(const Tensor& input_ids, const CheckpointingConfig& checkpointing) const;

  Embedding token_embedding, position_embedding;
  Tensor position_ids;
  ModuleId module = 0;
};

struct ClipTextModel {
  ClipTextModel() = default;
  ClipTextModel(const Builder& builder, const ClipTextConfig& config, const ModelOptions& options);
  ClipVisionOutput operator()(const Tensor& input_ids) const;

  ClipTextEmbeddings embeddings;
  ClipEncoder encoder;
  LayerNorm final_layer_norm;
  bool pools_by_argmax = false;  ///< eos_token_id == 2
  MaskedBy masked = MaskedBy::sdpa;
  ModuleId module = 0;
};

std::unique_ptr<Model> build_clip(Context& context, const ClipConfig& config, const DataConfig& data,
                                  const ModelOptions& options);
std::unique_ptr<Model> build_clip_vision(Context& context, const ClipVisionConfig& config, const DataConfig& data,
                                         const ModelOptions& options);

}  // namespace oometer
