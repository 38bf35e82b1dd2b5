#pragma once

#include <utility>

#include "models/kit/mixture.h"
#include "models/llama/llama.h"

/// transformers 5.23, models/gpt_oss/modeling_gpt_oss.py: what no other class does so.
namespace oometer {

/// eager_attention_forward with sinks: one more key a head, of weights alone, which softmax takes in and which is cut
/// off again.
AttentionOutputs attend_with_sinks(const AttentionCall& call, const AttentionInputs& states, const Tensor& mask,
                                   const Tensor& sinks);
/// apply_rotary_pos_emb: halves of a head that are turned by tables of half its size.
std::pair<Tensor, Tensor> rotate_chunks(const Tensor& q, const Tensor& k, const PositionEmbeddings& positions);
/// GptOssRotaryEmbedding.forward: these tables, in `dtype`.
PositionEmbeddings embed_half_positions(const LlamaRotaryEmbedding& rotary_emb, const Tensor& position_ids,
                                        DType dtype);

/// GptOssTopKRouter.forward: softmax of the best logits, in their type.
Routing softmax_of_best(const Router& router, const Tensor& hidden_states);
/// GptOssExperts._apply_gate: gates and ups take turns, and are clamped.
Tensor clamped_gate(const Tensor& gate_up);

/// GptOssDecoderLayer: its MLP returns the router's scores, too, in place of the attention's weights.
struct GptOssLayer : public DecoderLayer {
  GptOssLayer(const Builder& builder, const TextConfig& config, const ModelOptions& options);
  Tensor operator()(const Tensor& hidden_states, const PositionEmbeddings& positions,
                    const Tensor& attention_mask) const override;

 private:
  /// GptOssMLP.forward; `scores`: the router's.
  Tensor mlp(const Tensor& hidden_states, Tensor& scores) const;

  std::function<AttentionOutputs(const Tensor&, const PositionEmbeddings&, const Tensor&)> self_attn_;
  Router router_;
  Experts experts_;
  Norm input_layernorm_, post_attention_layernorm_;
  ModuleId module_, mlp_module_;
};

}  // namespace oometer
