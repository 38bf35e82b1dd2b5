#pragma once

#include "tensor/tensor.h"

namespace oometer {

class KvCache;

/// create_causal_mask (transformers 5.23, masking_utils.py) of an unpadded batch. Finds out whether sequences are
/// packed (they are not); eager attention gets a [b, 1, s, s] mask of the embeddings' type, SDPA none: it is told that
/// the attention is causal. With a cache (Context::past_key_values) SDPA does without where there is one query, or
/// nothing was cached before. Earlier versions: see Behaviours::causal_mask. `with_padding_mask`: the batch came with a
/// 2-D attention_mask, all ones. `sliding_window`: create_sliding_window_causal_mask; SDPA has a mask as soon as there
/// are as many keys.
Tensor create_causal_mask(const Tensor& inputs_embeds, const Tensor& position_ids, bool eager,
                          bool with_padding_mask = false, std::int64_t sliding_window = 0);

/// The same of `queries` new tokens with a cache: [b, 1, queries, keys], null where SDPA goes without.
/// `dtype`: of eager attention's; boolean: SDPA's.
Tensor cached_mask(Context& context, const KvCache& cache, std::int64_t batch, std::int64_t queries, DType dtype,
                   std::int64_t sliding_window);

/// _create_4d_causal_attention_mask (transformers 4.x, modeling_attn_mask_utils.py): [b, 1, s, s] whatever the
/// attention.
Tensor create_4d_causal_mask(const Tensor& inputs_embeds);

}  // namespace oometer
