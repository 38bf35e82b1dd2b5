#pragma once

#include "nn/attention.h"

namespace oometer {

/// flash_attention_forward (transformers 5.23, integrations/flash_attention.py, modeling_flash_attention_utils.py) with
/// the packages flash-attn 2 and 3: padding is taken out of queries, keys and values in each layer and put back into
/// the result; the documents of a single row are separated by its position_ids, or as cu_seq_lens say; other batches
/// run as they are. query [b, heads, s, d], key and value [b, kv_heads, s, d]; mask [b, s], where tokens are padding,
/// else null. The result is [b, s, heads, d].
Tensor flash_attention_forward(const AttentionCall& call, const Tensor& query, const Tensor& key, const Tensor& value,
                               const Tensor& mask, const Sequences& sequences);

}  // namespace oometer
