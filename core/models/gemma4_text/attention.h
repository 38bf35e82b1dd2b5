#pragma once

#include "models/gemma4_text/config.h"
#include "models/kit/decoder_layer.h"
#include "models/kit/norms.h"
#include "models/model.h"
#include "nn/attention.h"
#include "nn/module.h"

/// transformers 5.23, models/gemma4/modeling_gemma4.py and models/gemma3n/modeling_gemma3n.py.
namespace oometer {

/// Gemma4RMSNorm, of so many elements or of the hidden states. Liger's kernels take the place of some of them alone.
Norm gemma4_norm(const Builder& parent, const char* name, const Gemma4TextConfig& config, std::int64_t size,
                 const LigerConfig& kernels = {});
Norm gemma4_norm(const Builder& parent, const char* name, const Gemma4TextConfig& config,
                 const LigerConfig& kernels = {});
/// with_scale=False: no weight.
Norm norm_without_scale(const Builder& parent, const char* name, const Gemma4TextConfig& config);

/// Gemma4TextAttention, Gemma3nTextAttention.
struct Gemma4TextAttention {
  Gemma4TextAttention(const Builder& builder, const Gemma4TextConfig& config, const ModelOptions& options,
                      std::size_t layer);
  AttentionOutputs operator()(const Tensor& hidden_states, const PositionEmbeddings& positions,
                              const Tensor& attention_mask) const;

  std::int64_t head_dim;
  bool is_sliding, is_kv_shared_layer, store_full_length_kv, projects_before_norms;
  Linear q_proj, k_proj, v_proj, o_proj;  ///< where keys are values, v_proj is not there
  Norm q_norm, k_norm, v_norm;
  AttentionCall call;
  std::size_t layer_idx;
  ModuleId module;
};

}  // namespace oometer
