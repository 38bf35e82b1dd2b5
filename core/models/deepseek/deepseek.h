#pragma once

#include <functional>
#include <optional>

#include "models/deepseek/config.h"
#include "models/kit/decoder.h"
#include "models/kit/mixture.h"
#include "models/llama/llama.h"
#include "models/model.h"
#include "nn/module.h"

/// transformers 5.23, models/deepseek_v2/modeling_deepseek_v2.py, models/deepseek_v3/modeling_deepseek_v3.py. Names and
/// order of steps are those files'.
namespace oometer {

/// DeepseekV2TopkRouter. V3's is the kit's (best_of_groups).
struct DeepseekRouter {
  DeepseekRouter(const Builder& at, const DeepseekConfig& config);
  Routing operator()(const Tensor& hidden_states) const;

  const DeepseekConfig* config = nullptr;
  Tensor weight;
  ModuleId module = 0;
  std::shared_ptr<const ParametersWrapper> wrapper;  ///< null: none
};

MoeWithShared make_deepseek_moe(const Builder& builder, const DeepseekConfig& config, const LigerConfig& kernels);

/// MTLA's (models/deepseek/mtla.h): how tokens' latents are weighted where they are merged; low_rank is 4.
struct HyperNetwork {
  HyperNetwork() = default;
  HyperNetwork(const Builder& builder, std::int64_t width);

  Linear fc_c, fc_p;
  ModuleId module = 0;
};

/// MistralLarge4TextSoftmaxScaling: of each head, by the logarithm of a position.
struct SoftmaxScaling {
  SoftmaxScaling() = default;
  SoftmaxScaling(const Builder& builder, std::int64_t heads);
  /// `heads_first`: query is [b, heads, s, d], else [b, s, heads, d].
  Tensor operator()(const Tensor& query, const Tensor& position_ids, bool heads_first) const;

  Tensor scale, bias;
  ModuleId module = 0;
};

/// DeepseekV32Indexer, GlmMoeDsaIndexer, MistralLarge4TextIndexer: which tokens attention sees.
struct Indexer {
  Indexer(const Builder& builder, const DeepseekConfig& config, bool turns);
  /// [b, s, index_topk], int32. `q_resid`: compressed queries; `attention_mask`: [b, s, s].
  Tensor operator()(const Tensor& hidden_states, const Tensor& q_resid, const PositionEmbeddings& positions,
                    const Tensor& attention_mask) const;

  const DeepseekConfig* config = nullptr;
  Linear wq_b, wk, weights_proj;
  Norm k_norm, q_input_norm;       ///< the second where queries are not compressed
  SoftmaxScaling softmax_scaling;  ///< the same
  bool turns;
  ModuleId module = 0;
};

/// AXK2GatedRMSNorm.
struct GatedNorm {
  GatedNorm(const Builder& builder, const DeepseekConfig& config);
  Tensor operator()(const Tensor& hidden_states) const;

  LlamaRMSNorm norm;
  Linear fc1, fc2;
  ModuleId module, mlp_module = 0;
};

struct DeepseekAttention {
  struct Rotated {
    Tensor q, k;
  };

  DeepseekAttention() = default;
  DeepseekAttention(const Builder& builder, const DeepseekConfig& config, const ModelOptions& options);
  /// V2: `positions.cos` holds freqs_cis, pairs of float32.
  AttentionOutputs operator()(const Tensor& hidden_states, const PositionEmbeddings& positions,
                              const Tensor& attention_mask) const;
  /// Queries [b, heads, s, qk_head_dim]. `compressed`: what they are made of, where they are.
  Tensor project_queries(const Tensor& hidden_states, Tensor* compressed = nullptr) const;
  /// The rotary embedding of q and k [b, heads, s, qk_rope_head_dim].
  Rotated turn(const Tensor& q, const Tensor& k, const PositionEmbeddings& positions) const;
  /// Keys and values [b, heads, s, d] of latents [b, 1, s, kv_lora_rank] and the keys [b, 1, s, rope] that all share.
  AttentionInputs expand_kv(const Tensor& kv_nope, const Tensor& k_rot) const;

  const DeepseekConfig* config = nullptr;
  std::int64_t nope = 0, rope = 0;  ///< of a head: elements that stay as they are, and those that are turned
  Linear q_proj, q_a_proj, q_b_proj /* or q_gate_proj */, kv_a_proj_with_mqa, kv_b_proj, o_proj;
  Linear g_proj;  ///< where heads are gated
  LlamaRMSNorm q_a_layernorm, kv_a_layernorm;
  HyperNetwork hypernet_down;
  std::optional<Indexer> indexer;
  SoftmaxScaling softmax_scaling;  ///< where it is learnt
  AttentionCall call;
  std::size_t layer_idx = 0;
  ModuleId module = 0;
};

class DeepseekDecoderLayer : public PreNormLayer {
 public:
  DeepseekDecoderLayer(const Builder& builder, const DeepseekConfig& config, const ModelOptions& options,
                       bool with_experts);
  Tensor operator()(const Tensor& hidden_states, const PositionEmbeddings& positions,
                    const Tensor& attention_mask) const override;

 private:
  AttentionOutputs self_attn(const Tensor& hidden_states, const PositionEmbeddings& positions,
                             const Tensor& attention_mask) const override {
    return self_attn_(hidden_states, positions, attention_mask);
  }
  Tensor mlp(const Tensor& hidden_states) const override { return moe_ ? (*moe_)(hidden_states) : mlp_(hidden_states); }

  DeepseekAttention self_attn_;
  LlamaMLP mlp_;
  std::optional<MoeWithShared> moe_;
  std::function<Tensor(const Tensor&)> input_layernorm_, post_attention_layernorm_;  ///< where the class is gated
  ModuleId module_;
};

/// What DeepseekV2Model and DeepseekV3Model have of their own.
DecoderParts deepseek_parts(Context& context, const DeepseekConfig& config, const ModelOptions& options);
std::unique_ptr<Model> build_deepseek(Context& context, const DeepseekConfig& config, const DataConfig& data,
                                      const ModelOptions& options);

}  // namespace oometer
