#pragma once

#include <vector>

#include "models/kit/conv1d.h"
#include "models/kit/conv2d.h"
#include "models/model.h"
#include "models/phi4_multimodal/config.h"
#include "nn/attention.h"

/// Audio in transformers 5.23, models/phi4_multimodal/modeling_phi4_multimodal.py. Names and order of steps are that
/// file's.
namespace oometer {

struct Phi4AudioMLP {
  Phi4AudioMLP() = default;
  Phi4AudioMLP(const Builder& builder, const Phi4AudioConfig& config);
  Tensor operator()(const Tensor& hidden_states) const;

  LayerNorm layer_norm;
  Linear gate_up_proj, down_proj;
  Activation act_fn = Activation::silu;
  double dropout_rate = 0;
  ModuleId module = 0;
};

struct Phi4AudioAttention {
  Phi4AudioAttention() = default;
  Phi4AudioAttention(const Builder& builder, const Phi4AudioConfig& config, const ModelOptions& options);
  Tensor operator()(const Tensor& hidden_states, const Tensor& attention_mask) const;

  Linear q_proj, k_proj, v_proj, o_proj;
  std::int64_t head_dim = 0;
  AttentionCall call;
  ModuleId module = 0;
};

struct Phi4AudioConvModule {
  Phi4AudioConvModule() = default;
  Phi4AudioConvModule(const Builder& builder, const Phi4AudioConfig& config);
  Tensor operator()(const Tensor& hidden_states) const;
  Tensor glu(const Tensor& hidden_states) const;

  LayerNorm layer_norm;
  Conv1d glu_conv;
  Tensor b1, b2;
  Conv1d dw_conv, pw_conv, ext_pw_conv_1d;
  Activation glu_act = Activation::silu, act = Activation::silu;
  std::int64_t kernel_size = 0;
  double dropout_rate = 0;
  ModuleId glu_module = 0, separable = 0, module = 0;
};

struct Phi4AudioLayer {
  Phi4AudioLayer(const Builder& builder, const Phi4AudioConfig& config, const ModelOptions& options);
  Tensor operator()(const Tensor& hidden_states, const Tensor& attention_mask) const;

  Phi4AudioMLP feed_forward_in;
  Phi4AudioAttention self_attn;
  Phi4AudioConvModule conv;
  Phi4AudioMLP feed_forward_out;
  LayerNorm layer_norm_att, layer_norm;
  ModuleId module = 0;
};

struct Phi4AudioModel {
  Phi4AudioModel() = default;
  Phi4AudioModel(const Builder& builder, const Phi4AudioConfig& config, const ModelOptions& options);
  /// `mask`: [b, frames], or null.
  Tensor operator()(const Tensor& hidden_states, const Tensor& mask) const;
  Tensor embed(const Tensor& hidden_states, const Tensor& mask, Tensor& pad_mask) const;
  Tensor relative_attention_bias(const Tensor& x) const;

  Tensor global_mean, global_invstd;
  std::vector<AnyConv2d> convolutions;
  Linear out;
  Embedding bias_values;
  std::vector<Phi4AudioLayer> encoders;
  Phi4AudioConfig config;
  ModuleId encoder_embedding = 0, embed_module = 0, bias_module = 0, module = 0;
};

/// A batch's audio, as the processor gives it.
struct Phi4Audio {
  Tensor audio_input_features;  ///< [audios, frames, bins]
  Tensor audio_attention_mask;  ///< [audios, frames] of booleans; null: there is one audio
};

struct Phi4AudioEmbedding {
  Phi4AudioEmbedding() = default;
  Phi4AudioEmbedding(const Builder& builder, const Phi4Config& config, const ModelOptions& options);
  /// `beside_images`: audio_projection_mode.
  Tensor operator()(const Tensor& input_ids, const Tensor& inputs_embeds, const Phi4Audio& audio,
                    bool beside_images) const;

  Phi4AudioModel encoder;
  Linear up_proj_for_speech, down_proj_for_speech, up_proj_for_vision_speech, down_proj_for_vision_speech;
  double drop = 0;
  ModuleId module = 0;
};

}  // namespace oometer
