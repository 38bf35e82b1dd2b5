#pragma once

#include <cstdint>

#include "models/data.h"
#include "nn/attention.h"
#include "tensor/tensor.h"

namespace oometer {

class KvCache;
struct CausalMasks;

/// What says which tokens see which, as forward was called with it; null: not passed.
struct MaskArguments {
  Tensor position_ids;                 ///< [b, s] or [1, s]
  Tensor attention_mask;               ///< [b, s]
  const Rows* rows = nullptr;          ///< what stands in both; null: each row is one document that fills it
  Tensor cu_seq_lens{};                ///< where documents begin, for flash attention
  const CausalMasks* masks = nullptr;  ///< what the caller has made of the others already; null: nothing
  bool is_chunked = false;             ///< the window is a chunk's size (create_chunked_causal_mask); nothing is padded
  bool is_always_made = false;         ///< SDPA gets one whatever the samples are (allow_is_causal_skip = False)
  bool is_triangular = true;  ///< of CausalMask::cache_position: what is masked is cut out as a triangle first (Llama)
};

/// Whose mask it is (ALL_MASK_ATTENTION_FUNCTIONS).
enum class MaskedBy : std::uint8_t { sdpa, eager, flash_attention };
MaskedBy masked_by(AttentionKind attention);

/// create_causal_mask (transformers 5.23, masking_utils.py). Without an attention_mask it finds out whether sequences
/// are packed, with one whether tokens are padding. Where neither is so, SDPA gets no mask, but
/// is_causal. Otherwise [b, 1, s, s], boolean for SDPA; eager attention always gets one, of the embeddings'
/// type; flash attention gets the attention_mask itself, as booleans. With a cache (Context::past_key_values) SDPA does
/// without where there is one query, or nothing was cached before. Earlier versions: see Behaviours::causal_mask; of
/// them nothing is padded or packed. `sliding_window`: create_sliding_window_causal_mask; SDPA has a mask as soon as
/// there are as many keys. -1: of a model none of whose layers slide, whose window has no size.
Tensor create_causal_mask(const Tensor& inputs_embeds, const MaskArguments& given, MaskedBy masked,
                          std::int64_t sliding_window = 0);

/// create_recurrent_attention_mask: the attention_mask itself, for layers that only have to know which tokens are
/// padding; null where none is.
Tensor create_recurrent_attention_mask(const Tensor& inputs_embeds, const MaskArguments& given);

/// create_bidirectional_mask: where no token is padding none is made, whatever the attention. `sliding_window`:
/// create_bidirectional_sliding_window_mask, of tokens that see so many on either side; none is made of a shorter text.
Tensor create_bidirectional_mask(const Tensor& inputs_embeds, const MaskArguments& given, MaskedBy masked,
                                 std::int64_t sliding_window = 0);

/// create_causal_mask of `queries` new tokens with a cache: [b, 1, queries, keys], null where SDPA goes without.
/// `dtype`: of eager attention's; boolean: SDPA's.
/// `attention_mask`: [b, keys], null or, where the cache takes padding, made part of it. `is_always_made`: as in
/// MaskArguments.
Tensor cached_mask(Context& context, const KvCache& cache, std::int64_t batch, std::int64_t queries, DType dtype,
                   std::int64_t sliding_window, const Tensor& attention_mask = {}, bool is_always_made = false);

/// _create_4d_causal_attention_mask (transformers 4.x, modeling_attn_mask_utils.py): [b, 1, s, s] whatever the
/// attention.
Tensor create_4d_causal_mask(const Tensor& inputs_embeds);

}  // namespace oometer
