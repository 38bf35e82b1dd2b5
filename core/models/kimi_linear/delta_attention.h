#pragma once

#include <cstddef>

#include "models/kit/causal_conv.h"
#include "models/kit/norms.h"
#include "models/kit/text_config.h"
#include "nn/attention.h"
#include "nn/module.h"
#include "ops/linear_attention.h"

/// Kimi Delta Attention: the gated delta rule with a decay of each channel's own (transformers 5.23,
/// models/kimi_linear/modeling_kimi_linear.py).
namespace oometer {

/// chunk_kimi_delta_attention, or recurrent_kimi_delta_attention where the layer `decodes` one token behind its cache;
/// fla's where it is installed (Kernels). The state goes into the cache, where there is one.
DeltaRuleOutputs kimi_delta_attention(const DeltaRuleInputs& inputs, std::size_t layer, bool decodes);

/// Queries, keys and values of such attention, with one convolution over the channels of all. They have as many heads
/// of one size: MixerConfig's num_value_heads and value_head_dim.
struct ConvolvedProjections {
  /// `keeps_float32`: the convolution, whatever the model is.
  ConvolvedProjections(const Builder& builder, const TextConfig& config, bool keeps_float32);

  struct Output {
    Tensor query, key, value;  ///< [b, s, heads, d]
    bool decodes;              ///< the layer's cache knows tokens before the one that it is called with
  };
  /// `slices`: the class cuts what the convolution gives to its tokens without a cache, too, which autograd records.
  Output operator()(const Tensor& hidden_states, bool slices) const;

  std::int64_t heads, head_dim;
  Linear q_proj, k_proj, v_proj;
  CausalConv conv1d;
  Activation activation;
  std::size_t layer_idx;
};

/// KimiLinearRMSNormGated.forward.
Tensor sigmoid_gated_norm(const Norm& norm, const Tensor& hidden_states, const Tensor& gate);

/// KimiLinearForgetGate.
struct KimiForgetGate {
  KimiForgetGate(const Builder& builder, const TextConfig& config);
  /// g: the logarithm of the decay, [b, s, heads, d].
  Tensor operator()(const Tensor& hidden_states) const;

  Linear f_a_proj, f_b_proj;
  Tensor dt_bias, a_log;
  std::int64_t heads, head_dim;
  ModuleId module;
};

/// KimiLinearDeltaAttention.
class KimiDeltaAttention {
 public:
  KimiDeltaAttention(const Builder& builder, const TextConfig& config);
  /// `attention_mask`: which tokens are not padding, [b, s]; null: all.
  AttentionOutputs operator()(const Tensor& hidden_states, const Tensor& attention_mask) const;

 private:
  ConvolvedProjections projections_;
  KimiForgetGate forget_gate_;
  Linear b_proj_, g_a_proj_, g_b_proj_;
  Norm o_norm_;
  Linear o_proj_;
  ModuleId module_;
};

}  // namespace oometer
