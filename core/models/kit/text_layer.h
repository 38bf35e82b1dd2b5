#pragma once

#include <functional>
#include <memory>

#include "models/kit/decoder_layer.h"
#include "models/kit/norms.h"
#include "models/kit/text_attention.h"
#include "models/kit/text_config.h"
#include "nn/attention.h"
#include "nn/module.h"

/// Decoder layers of language models: attention, an MLP and norms, put together in one of the usual ways.
namespace oometer {

/// gate_proj, up_proj, down_proj in two: `gate_up_proj(x).chunk(2)` (Phi3MLP).
struct FusedMLP {
  FusedMLP(const Builder& builder, const LlamaConfig& config, const LigerConfig& kernels = {});
  Tensor operator()(const Tensor& hidden_states) const;

  Linear gate_up_proj, down_proj;
  Activation act_fn = Activation::silu;
  bool liger = false;  ///< LigerPhi3SwiGLUMLP
  ModuleId module = 0;
};

/// Two projections with an activation between them, called `up` and `down`.
struct PlainMLP {
  PlainMLP(const Builder& builder, const TextConfig& config, const char* up, const char* down, bool bias,
           const char* type = "Linear");
  Tensor operator()(const Tensor& hidden_states) const;

  Linear up_proj, down_proj;
  Activation act_fn = Activation::silu;
  double residual_dropout = 0;
  bool liger = false;  ///< LigerReLUSquared
  ModuleId module = 0;
};

/// A layer: its parts, made by the family's class in its own order, and the order in which they run.
struct TextLayer : public DecoderLayer {
  using MLP = std::function<Tensor(const Tensor&)>;
  /// The steps of a class's forward.
  using Forward = Tensor (*)(const TextLayer& layer, const Tensor& hidden_states, const PositionEmbeddings& positions,
                             const Tensor& attention_mask);

  TextLayer(const Builder& builder, Forward its_forward) : forward(its_forward), module(builder.module) {}
  Tensor operator()(const Tensor& hidden_states, const PositionEmbeddings& positions,
                    const Tensor& attention_mask) const override {
    const ModuleScope scope(hidden_states.context(), module);
    return forward(*this, hidden_states, positions, attention_mask);
  }

  Forward forward;
  std::function<AttentionOutputs(const Tensor&, const PositionEmbeddings&, const Tensor&)> self_attn;
  MLP mlp;
  Norm input_norm, attention_norm;     ///< before attention; behind it
  Norm feedforward_norm, output_norm;  ///< before the MLP; behind it
  bool scales_residual = false;        ///< residual_multiplier
  double residual_dropout = 0;
  ModuleId module = 0;
};

/// LlamaDecoderLayer.forward: input_norm and feedforward_norm.
Tensor pre_norm(const TextLayer& layer, const Tensor& hidden_states, const PositionEmbeddings& positions,
                const Tensor& attention_mask);
/// LlamaDecoderLayer.__init__ and its forward, which most classes have as it is: attention with what `attention` says
/// differs, the MLP that `make_mlp` makes in the layer, and RMSNorms.
std::unique_ptr<TextLayer> pre_norm_layer(const Builder& builder, const TextConfig& config, const ModelOptions& options,
                                          const AttentionParts& attention,
                                          const std::function<TextLayer::MLP(const Builder& layer)>& make_mlp);
/// The same with LlamaMLP.
std::unique_ptr<TextLayer> pre_norm_layer(const Builder& builder, const TextConfig& config, const ModelOptions& options,
                                          const AttentionParts& attention = {}, Norm::Forward norm = rms_norm);
/// Olmo2DecoderLayer.forward: attention_norm and output_norm.
Tensor post_norm(const TextLayer& layer, const Tensor& hidden_states, const PositionEmbeddings& positions,
                 const Tensor& attention_mask);
/// Gemma2DecoderLayer.forward: all four.
Tensor sandwich_norm(const TextLayer& layer, const Tensor& hidden_states, const PositionEmbeddings& positions,
                     const Tensor& attention_mask);
/// CohereDecoderLayer.forward, StableLmDecoderLayer.forward: attention and MLP side by side behind input_norm.
Tensor parallel(const TextLayer& layer, const Tensor& hidden_states, const PositionEmbeddings& positions,
                const Tensor& attention_mask);

}  // namespace oometer
