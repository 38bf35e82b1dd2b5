#pragma once

#include <memory>
#include <vector>

#include "models/blip_2/config.h"
#include "models/clip/clip.h"
#include "models/kit/qformer.h"
#include "models/model.h"

/// transformers 5.23, models/blip_2/modeling_blip_2.py. Names and order of steps are that file's.
namespace oometer {

struct Blip2Attention {
  Blip2Attention(const Builder& builder, const Blip2Config& config, const ModelOptions& options);
  AttentionOutputs operator()(const Tensor& hidden_states) const;

  Linear qkv, projection;
  std::int64_t num_heads = 0;
  AttentionCall call;
  ModuleId module = 0;
};

struct Blip2EncoderLayer {
  Blip2EncoderLayer(const Builder& builder, const Blip2Config& config, const ModelOptions& options);
  Tensor operator()(const Tensor& hidden_states) const;

  Blip2Attention self_attn;
  LayerNorm layer_norm1;
  ClipMLP mlp;
  LayerNorm layer_norm2;
  ModuleId module = 0;
};

struct Blip2VisionModel {
  Blip2VisionModel() = default;
  Blip2VisionModel(const Builder& builder, const Blip2Config& config, const ModelOptions& options);
  ClipVisionOutput operator()(const Tensor& pixel_values) const;

  struct {
    Tensor class_embedding;
    Conv2d patch_embedding;
    Tensor position_embedding;
    ModuleId module = 0;
  } embeddings;
  std::vector<Blip2EncoderLayer> layers;
  BlockStack blocks;
  LayerNorm post_layernorm;
  CheckpointingConfig checkpointing;
  ModuleId encoder = 0, module = 0;

 private:
  Tensor embed(const Tensor& pixel_values) const;
};

std::unique_ptr<Model> build_blip2(Context& context, const Blip2Config& config, const DataConfig& data,
                                   const ModelOptions& options);

}  // namespace oometer
