#pragma once

#include "models/deepseek/deepseek.h"
#include "nn/kv_cache.h"

namespace oometer {

/// Multi-head Temporal Latent Attention (arXiv 2505.13544; github.com/D-Keqi/mtla at 498b1d3, mtla/mtla_hf/
/// mtla_attention.py, MultiheadTemporalLatentAttentionHF.forward with a cache) in a latent attention's place: with its
/// projections, norms and rotary embedding, and a hyper-network that merges `temporal_stride` tokens' latents into one.
AttentionOutputs attend_temporally(const DeepseekAttention& attention, const Tensor& hidden_states,
                                   const PositionEmbeddings& positions, KvCache& cache);

}  // namespace oometer
