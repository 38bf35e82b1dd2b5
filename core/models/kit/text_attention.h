#pragma once

#include <functional>
#include <utility>

#include "models/kit/decoder_layer.h"
#include "models/kit/norms.h"
#include "models/kit/text_config.h"
#include "models/model.h"
#include "nn/attention.h"
#include "nn/module.h"

/// Self-attention of language models: projections, norms of queries and keys, positions, and attention itself.
namespace oometer {

struct LlamaRotaryEmbedding;

/// apply_rotary_pos_emb of a class: both results are there before the names are bound again.
using ApplyRotary = std::pair<Tensor, Tensor> (*)(const Tensor& q, const Tensor& k,
                                                  const PositionEmbeddings& positions);
/// Llama's. Gemma's, Granite's and many others'.
std::pair<Tensor, Tensor> rotate_halves(const Tensor& q, const Tensor& k, const PositionEmbeddings& positions);
/// Olmo2's: cos and sin are float32, and so is what is made of them.
std::pair<Tensor, Tensor> rotate_float32(const Tensor& q, const Tensor& k, const PositionEmbeddings& positions);
/// Phi3's: of each head the first elements, as many as cos has. There may be none behind them: joined they are all the
/// same.
std::pair<Tensor, Tensor> rotate_first(const Tensor& q, const Tensor& k, const PositionEmbeddings& positions);
/// Helium's: pairs of neighbours; cos and sin are spread over them.
std::pair<Tensor, Tensor> rotate_pairs(const Tensor& q, const Tensor& k, const PositionEmbeddings& positions);
/// Glm's: pairs, of the first elements. GPTNeoX's: halves of the first. Nemotron's: both are rotated before either is
/// joined again.
std::pair<Tensor, Tensor> rotate_first_pairs(const Tensor& q, const Tensor& k, const PositionEmbeddings& positions);
std::pair<Tensor, Tensor> rotate_first_halves(const Tensor& q, const Tensor& k, const PositionEmbeddings& positions);
std::pair<Tensor, Tensor> rotate_first_joined(const Tensor& q, const Tensor& k, const PositionEmbeddings& positions);
/// Cohere's: pairs, in float32.
std::pair<Tensor, Tensor> rotate_pairs_float32(const Tensor& q, const Tensor& k, const PositionEmbeddings& positions);
/// Ernie4_5's: the same with cos and sin in float32, spread over pairs.
std::pair<Tensor, Tensor> rotate_spread_float32(const Tensor& q, const Tensor& k, const PositionEmbeddings& positions);

/// Liger's in its place, whatever it is (rope.py).
std::pair<Tensor, Tensor> rotate_with_liger(const Tensor& q, const Tensor& k, const PositionEmbeddings& positions);

/// Olmo2RotaryEmbedding.forward: cos and sin stay in float32.
PositionEmbeddings embed_positions_float32(const LlamaRotaryEmbedding& rotary_emb, const Tensor& position_ids,
                                           DType of_hidden_states);

/// Where queries and keys are normalised.
enum class HeadNorms : std::uint8_t {
  none,
  whole,       ///< all heads at once, as they are projected
  projected,   ///< each head, as it is projected
  viewed,      ///< each head, before the heads change places with the tokens; `norm` may be null
  transposed,  ///< each head, afterwards
  rotated      ///< each head, with its position
};

/// A class's own eager_attention_forward. `sinks`: one number a head.
using SinkAttention = AttentionOutputs (*)(const AttentionCall& call, const AttentionInputs& states, const Tensor& mask,
                                           const Tensor& sinks);

/// What a class's attention has of its own.
struct AttentionParts {
  bool has_gate = false;               ///< q_proj gives a gate of the result, too (Qwen3NextAttention)
  bool projects_first = false;         ///< see project (nn/attention.h)
  bool scales_keys = false;            ///< behind their projection (FalconH1Attention)
  bool cuts_heads = false;             ///< forward itself takes off what is rotated, by names that stay
  ApplyRotary rotate = rotate_halves;  ///< null: none
  Tensor (*scale)(const Tensor& query, const PositionEmbeddings& positions) = nullptr;  ///< of queries that are rotated
  HeadNorms norms_at = HeadNorms::none;
  Norm::Forward norm = nullptr;
  const char *q_norm = "q_norm", *k_norm = "k_norm", *norm_type = "LlamaRMSNorm";
  /// Makes a norm that is a module of more than one, in place of `norm`.
  using MakeNorm = std::function<Tensor(const Tensor&)> (*)(const Builder& norm, std::int64_t heads, std::int64_t size);
  MakeNorm make_norm = nullptr;
  const char* o_proj = "o_proj";
  SinkAttention with_sinks = nullptr;  ///< none: no sinks
};

class TextAttention {
 public:
  TextAttention(const Builder& builder, const TextConfig& config, const ModelOptions& options,
                const AttentionParts& parts = {});
  AttentionOutputs operator()(const Tensor& hidden_states, const PositionEmbeddings& positions,
                              const Tensor& attention_mask) const;

 private:
  /// `gate`: where there is one.
  AttentionInputs projected(const Tensor& hidden_states, Tensor& gate) const;

  AttentionParts parts_;
  Linear q_proj_, k_proj_, v_proj_, o_proj_;
  std::function<Tensor(const Tensor&)> q_norm_, k_norm_;
  Tensor sinks_;
  std::int64_t head_dim_ = 0;
  double residual_dropout_ = 0;
  AttentionCall call_;
  std::size_t layer_idx_ = 0;
  ModuleId module_ = 0;
};

/// What the attention of a layer calls its index: that of the layer in its list.
std::size_t layer_index(const Builder& attention);
AttentionCall attention_call(const TextConfig& config, const ModelOptions& options);

/// From keys and values with positions to `attn_output.reshape(*input_shape, -1)`, before o_proj.
/// `own_eager`: the class's eager_attention_forward; null: Llama's.
using EagerAttention = std::function<AttentionOutputs(const AttentionCall& call, const AttentionInputs& states,
                                                      const Tensor& attention_mask)>;
AttentionOutputs attend(const AttentionCall& call, std::size_t layer_idx, AttentionInputs& states,
                        const PositionEmbeddings& positions, const Tensor& attention_mask,
                        const EagerAttention& own_eager = nullptr);

}  // namespace oometer
