#pragma once

#include "models/llama/llama.h"
#include "nn/kv_cache.h"

namespace oometer {

/// What HeadInfer (arXiv 2502.12574; github.com/wdlctc/headinfer at b57e449, headinfer/mp.py:
/// LlamaAttention_fast_forward, Qwen2Attention_fast_forward) runs in place of a Llama's attention: one key head after
/// the other, with the query heads that it serves, each with a cache of its own (KvCache::is_by_head).
Tensor attend_by_head(const LlamaAttention& attention, const Tensor& hidden_states, const PositionEmbeddings& positions,
                      KvCache& cache);

}  // namespace oometer
