#pragma once

#include <optional>

#include "models/wav2vec2/wav2vec2.h"
#include "nn/attention.h"
#include "nn/module.h"

namespace oometer {

/// WavLMAttention (transformers 5.23, models/wavlm/modeling_wavlm.py): relative positions' bias, which the first layer
/// makes, weighed by gates of each layer's own. Its projections are no calls: F.multi_head_attention_forward takes
/// their weights.
struct GatedAttention {
  GatedAttention(const Builder& builder, const Wav2Vec2Config& c, bool has_relative_position_bias);
  /// `position_bias`: null to the first layer, which makes it.
  AttentionOutputs operator()(const Tensor& argument, const Tensor& attention_mask, Tensor& position_bias) const;

 private:
  Tensor compute_bias(Context& context, std::int64_t length) const;
  AttentionOutputs multi_head_attention(const Tensor& hidden_states, const Tensor& attention_mask,
                                        const Tensor& gated_position_bias) const;

  std::int64_t heads, head_dim;
  double dropout_p;
  Linear k_proj, v_proj, q_proj, out_proj;
  Tensor gru_rel_pos_const;
  Linear gru_rel_pos_linear;
  std::optional<Embedding> rel_attn_embed;
  ModuleId module;
};

}  // namespace oometer
