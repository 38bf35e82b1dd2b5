#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "models/kit/causal_conv.h"
#include "models/kit/norms.h"
#include "models/kit/recurrent.h"
#include "models/kit/text_config.h"
#include "nn/attention.h"
#include "nn/module.h"
#include "ops/linear_attention.h"

/// Linear attention by the gated delta rule (transformers 5.23, models/qwen3_next/modeling_qwen3_next.py).
namespace oometer {

/// chunk_gated_delta_rule, fla's where it is installed (Kernels), else torch_chunk_gated_delta_rule; with queries and
/// keys normalised in it; `output_final_state`: else there is none.
DeltaRuleOutputs chunk_gated_delta_rule(const DeltaRuleInputs& inputs, bool output_final_state,
                                        const Documents& documents = {});
/// fused_recurrent_gated_delta_rule of one token, the same.
DeltaRuleOutputs recurrent_gated_delta_rule(const DeltaRuleInputs& inputs, const Tensor& initial_state);

/// The documents of a packed row; none where cu_seq_lens are not passed.
Documents documents_of(const PositionEmbeddings& given);

/// The tail of a rule of one token: its state, decayed already, learns and is read into `core_attn_out`. What forward
/// names meanwhile.
struct DeltaStep {
  Tensor kv_mem, delta;
};
DeltaStep delta_step(Tensor& last_recurrent_state, const Tensor& query, const Tensor& key, const Tensor& value,
                     const Tensor& beta, const Tensor& core_attn_out);

/// Cache.update_recurrent_state.
void update_recurrent_state(KvCache& cache, std::size_t layer, const Tensor& last);

/// Qwen3NextRMSNormGated.forward.
Tensor rms_norm_gated(const Norm& norm, const Tensor& hidden_states, const Tensor& gate);

/// Qwen3NextGatedDeltaNet and Qwen3_5GatedDeltaNet.
class GatedDeltaNet {
 public:
  /// `joins_projections`: two projections give heads of queries, keys, values and gates one after another (Qwen3-Next),
  /// else there are four (Qwen3.5).
  GatedDeltaNet(const Builder& builder, const TextConfig& config, const char* norm_type, bool joins_projections);
  /// `attention_mask`: which tokens are not padding, [b, s]; null: all.
  AttentionOutputs operator()(const Tensor& hidden_states, const PositionEmbeddings& given,
                              const Tensor& attention_mask) const;

 private:
  struct Projected {
    Tensor mixed_qkv;  ///< [b, channels, s]
    Tensor z, b, a;
    Tensor qkvz, ba;           ///< names of forward's
    Tensor query, key, value;  ///< the same
  };
  Projected project(const Tensor& hidden_states) const;

  MixerConfig sizes_;
  CausalConv conv1d_;
  Linear in_proj_qkvz_, in_proj_ba_;                        ///< Qwen3-Next
  Linear in_proj_qkv_, in_proj_z_, in_proj_b_, in_proj_a_;  ///< Qwen3.5
  Tensor dt_bias_, a_log_;
  Norm norm_;
  Linear out_proj_;
  Activation activation_ = Activation::silu;
  bool joins_projections_ = false;
  std::size_t layer_idx_ = 0;
  ModuleId module_ = 0;
};

/// What Qwen3-Next, Qwen3.5 and their kin call the parts of a layer; `router` null: none has experts.
struct GatedLayerNames {
  const char *delta_net, *delta_norm;
  bool joins_projections = false;  ///< see GatedDeltaNet
  const char *block = nullptr, *router = nullptr, *experts = nullptr;
  bool merged_in_checkpoint = false;  ///< its experts' projections
};
/// Qwen3NextDecoderLayer: GatedDeltaNet, or attention with a gate of its result.
std::unique_ptr<DecoderLayer> make_gated_layer(const Builder& builder, const TextConfig& config,
                                               const ModelOptions& options, std::size_t index,
                                               const GatedLayerNames& names);

/// Heads of both kinds of layers. `rotary_share`: partial_rotary_factor's default.
void read_gated_heads(ConfigReader& reader, TextConfig& config, double rotary_share);
/// The fields that their configs share.
TextConfig read_gated_text(ConfigReader& reader, const TextConfig& defaults);

}  // namespace oometer
