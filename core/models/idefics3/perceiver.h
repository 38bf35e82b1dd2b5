#pragma once

#include <vector>

#include "models/idefics3/config.h"
#include "models/llama/llama.h"
#include "nn/attention.h"
#include "nn/module.h"

/// Idefics2's connector (transformers 5.23, models/idefics2/modeling_idefics2.py): whatever an image's size, it becomes
/// as many latents.
namespace oometer {

struct Idefics2MLP {
  Idefics2MLP() = default;
  Idefics2MLP(const Builder& builder, std::int64_t hidden_size, std::int64_t intermediate_size,
              std::int64_t output_size, Activation hidden_act);
  Tensor operator()(const Tensor& x) const;

  Linear gate_proj, up_proj, down_proj;
  Activation act_fn = Activation::silu;
  ModuleId module = 0;
};

struct Idefics2PerceiverAttention {
  Idefics2PerceiverAttention() = default;
  Idefics2PerceiverAttention(const Builder& builder, const Idefics3Config& config, AttentionKind attention);
  AttentionOutputs operator()(const Tensor& latents, const Tensor& context) const;

  Linear q_proj, k_proj, v_proj, o_proj;
  std::int64_t head_dim = 0;
  AttentionCall call;
  ModuleId module = 0;
};

struct Idefics2PerceiverLayer {
  Idefics2PerceiverLayer(const Builder& builder, const Idefics3Config& config, AttentionKind attention);
  Tensor operator()(const Tensor& latents, const Tensor& context) const;

  LlamaRMSNorm input_latents_norm, input_context_norm;
  Idefics2PerceiverAttention self_attn;
  LlamaRMSNorm post_attention_layernorm;
  Idefics2MLP mlp;
  ModuleId module;
};

struct Idefics2PerceiverResampler {
  Idefics2PerceiverResampler() = default;
  Idefics2PerceiverResampler(const Builder& builder, const Idefics3Config& config, AttentionKind attention);
  /// `attention_mask`: [images, patches].
  Tensor operator()(const Tensor& context, const Tensor& attention_mask) const;

  Tensor latents;
  std::vector<Idefics2PerceiverLayer> layers;
  LlamaRMSNorm norm;
  ModuleId module = 0;
};

struct Idefics2Connector {
  Idefics2Connector(const Builder& builder, const Idefics3Config& config, AttentionKind attention);
  Tensor operator()(const Tensor& image_hidden_states, const Tensor& attention_mask) const;

  Idefics2MLP modality_projection;
  Idefics2PerceiverResampler perceiver_resampler;
  ModuleId module;
};

}  // namespace oometer
