#pragma once

#include <memory>

#include "models/llama/llama.h"

/// transformers 5.23, models/olmo2/modeling_olmo2.py. Names and order of steps are that file's.
namespace oometer {

struct Olmo2Attention {
  Olmo2Attention(const Builder& builder, const LlamaConfig& config, const ModelOptions& options);
  AttentionOutputs operator()(const Tensor& hidden_states, const PositionEmbeddings& positions,
                              const Tensor& attention_mask) const;

  Linear q_proj, k_proj, v_proj, o_proj;
  LlamaRMSNorm q_norm, k_norm;  ///< of all heads together
  std::int64_t head_dim = 0;
  AttentionCall call;
  std::size_t layer_idx = 0;
  ModuleId module = 0;
};

/// Norms come after what they follow, before the residual is added.
class Olmo2DecoderLayer : public DecoderLayer {
 public:
  Olmo2DecoderLayer(const Builder& builder, const LlamaConfig& config, const ModelOptions& options);
  Tensor operator()(const Tensor& hidden_states, const PositionEmbeddings& positions,
                    const Tensor& attention_mask) const override;

 private:
  Olmo2Attention self_attn_;
  LlamaMLP mlp_;
  LlamaRMSNorm post_attention_layernorm_, post_feedforward_layernorm_;
  ModuleId module_ = 0;
};

std::unique_ptr<Model> build_olmo2(Context& context, const LlamaConfig& config, const DataConfig& data,
                                   const ModelOptions& options);

}  // namespace oometer
