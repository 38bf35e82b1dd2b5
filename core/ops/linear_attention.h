#pragma once

#include <cstdint>

#include "tensor/tensor.h"

/// Linear attention in flash-linear-attention's kernels (fla 0.6.0): the autograd Functions around them, whose Triton
/// kernels allocate nothing themselves.
namespace oometer {

/// The operands of a delta rule: query and key [b, s, key heads, d], value [b, s, value heads, d], beta [b, s, value
/// heads], g the same, or [b, s, heads, d] where each channel decays by itself.
struct DeltaRuleInputs {
  Tensor query, key, value, g, beta;
};

/// Where the documents of a packed row begin, [documents + 1], and how many chunks they have, each its own. Null and 0:
/// the row is one.
struct Documents {
  Tensor cu_seqlens{};
  std::int64_t chunks = 0;
};

/// What a rule gives: [b, s, value heads, d], and the state behind the last token, of which the next one begins.
struct DeltaRuleOutputs {
  Tensor core_attn_out, last_recurrent_state;
};

namespace fla {

inline constexpr std::int64_t kChunk = 64;  ///< tokens of a chunk

/// fla/ops/gated_delta_rule/chunk.py, ChunkGatedDeltaRuleFunction with use_qk_l2norm_in_kernel. `output_final_state`:
/// else there is none.
DeltaRuleOutputs chunk_gated_delta_rule(const DeltaRuleInputs& inputs, bool output_final_state,
                                        const Documents& documents = {});
/// fla/ops/gated_delta_rule/fused_recurrent.py, of one token and without a gradient.
DeltaRuleOutputs fused_recurrent_gated_delta_rule(const DeltaRuleInputs& inputs);

/// fla/ops/kda/chunk.py, ChunkKDAFunction with use_qk_l2norm_in_kernel: g is of each channel.
DeltaRuleOutputs chunk_kda(const DeltaRuleInputs& inputs, bool output_final_state);
/// fla/ops/kda/fused_recurrent.py, of one token and without a gradient.
DeltaRuleOutputs fused_recurrent_kda(const DeltaRuleInputs& inputs);

}  // namespace fla
}  // namespace oometer
