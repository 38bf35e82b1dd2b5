#pragma once

#include <memory>
#include <vector>

#include "models/clip/clip.h"
#include "models/mllama/config.h"
#include "models/model.h"
#include "nn/attention.h"
#include "nn/block_stack.h"
#include "nn/module.h"
#include "tensor/tensor_list.h"

/// transformers 5.23, models/mllama/modeling_mllama.py. Names and order of steps are that file's.
namespace oometer {

/// MllamaPrecomputedAspectRatioEmbedding: an embedding of each place that a tile may have.
struct MllamaPrecomputedAspectRatioEmbedding {
  MllamaPrecomputedAspectRatioEmbedding() = default;
  MllamaPrecomputedAspectRatioEmbedding(const Builder& builder, const MllamaVisionConfig& config);
  Tensor operator()(const Tensor& hidden_states, const Tensor& aspect_ratio_ids) const;

  Embedding embedding;
  Tensor gate;
  std::int64_t max_num_tiles = 0;
  ModuleId module = 0;
};

struct MllamaPrecomputedPositionEmbedding {
  MllamaPrecomputedPositionEmbedding() = default;
  MllamaPrecomputedPositionEmbedding(const Builder& builder, const MllamaVisionConfig& config);
  Tensor operator()(const Tensor& hidden_states, const Tensor& aspect_ratio_ids) const;

  Tensor gate, embedding;
  Embedding tile_embedding;
  std::int64_t max_num_tiles = 0;
  ModuleId module = 0;
};

struct MllamaVisionEncoderLayer {
  MllamaVisionEncoderLayer(const Builder& builder, const MllamaVisionConfig& config, bool is_gated,
                           AttentionKind attention);
  Tensor operator()(const Tensor& hidden_states, const Tensor& attention_mask) const;

  Linear q_proj, k_proj, v_proj, o_proj;
  ClipMLP mlp;
  LayerNorm input_layernorm, post_attention_layernorm;
  Tensor gate_attn, gate_ffn;  ///< null: it is not gated
  AttentionCall call;
  std::int64_t head_dim = 0;
  ModuleId self_attn = 0, module = 0;
};

/// No layer of it is ever checkpointed: none is a GradientCheckpointingLayer.
struct MllamaVisionEncoder {
  MllamaVisionEncoder() = default;
  MllamaVisionEncoder(const Builder& builder, const MllamaVisionConfig& config, std::int64_t num_layers, bool is_gated,
                      AttentionKind attention);
  /// What each layer gives.
  TensorList operator()(const Tensor& hidden_states, const Tensor& attention_mask) const;

  std::vector<MllamaVisionEncoderLayer> layers;
  BlockStack blocks;
  ModuleId module = 0;
};

struct MllamaVisionModel {
  MllamaVisionModel() = default;
  MllamaVisionModel(const Builder& builder, const MllamaVisionConfig& config, const ModelOptions& options);
  /// [b, images, tiles, patches, output_dim]
  Tensor operator()(const Tensor& pixel_values, const Tensor& aspect_ratio_ids, const Tensor& aspect_ratio_mask) const;

  MllamaVisionConfig config;
  DType dtype = DType::float32;
  Conv2d patch_embedding;
  Tensor class_embedding;
  MllamaPrecomputedPositionEmbedding gated_positional_embedding;
  MllamaPrecomputedAspectRatioEmbedding pre_tile_positional_embedding, post_tile_positional_embedding;
  LayerNorm layernorm_pre, layernorm_post;
  MllamaVisionEncoder transformer, global_transformer;
  CheckpointingConfig checkpointing;  ///< see require_input_grad
  ModuleId module = 0;
};

/// MllamaForConditionalGeneration.
std::unique_ptr<Model> build_mllama(Context& context, const MllamaConfig& config, const DataConfig& data,
                                    const ModelOptions& options);

}  // namespace oometer
