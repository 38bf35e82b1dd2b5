#pragma once

#include "models/vit/vit.h"
#include "nn/attention.h"
#include "nn/module.h"

namespace oometer {

/// Attention with the names that ViT had before transformers 5, key before value before query: class DPTSelfAttention
/// (5.23, models/dpt/modeling_dpt.py), class VideoMAESelfAttention (models/videomae/modeling_videomae.py).
struct VitSelfAttention {
  VitSelfAttention(const Builder& builder, const VitConfig& c, const ModelOptions& options, bool key_bias);

  AttentionOutputs operator()(const Tensor& argument) const;

  Linear query, key, value;
  std::int64_t head_dim;
  AttentionCall call;
  ModuleId module;
};

}  // namespace oometer
