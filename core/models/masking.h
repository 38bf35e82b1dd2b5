#pragma once

#include "tensor/tensor.h"

namespace oometer {

/// create_causal_mask (transformers 5.23, masking_utils.py) of an unpadded batch. Finds out whether sequences are
/// packed (they are not); eager attention gets a [b, 1, s, s] mask of the embeddings' type, SDPA none: it is told that
/// the attention is causal.
Tensor create_causal_mask(const Tensor& inputs_embeds, const Tensor& position_ids, bool eager);

}  // namespace oometer
