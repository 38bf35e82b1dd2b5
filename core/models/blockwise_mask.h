#pragma once

#include "models/masking.h"

/// Masks of a batch whose images see all of themselves. `block_sequence_ids` [b, s]: which image a token is of.
namespace oometer {

/// create_causal_mask, or with a window create_sliding_window_causal_mask, with block_sequence_ids (transformers 5.23,
/// masking_utils.py).
Tensor create_blockwise_mask(const Tensor& inputs_embeds, const MaskArguments& given, MaskedBy masked,
                             const Tensor& block_sequence_ids, std::int64_t sliding_window);

/// That of layers that slide, in whose window alone the images see themselves: create_masks_for_vision_model
/// (models/gemma3/modeling_gemma3.py, models/gemma4/modeling_gemma4.py).
Tensor create_sliding_blockwise_mask(const Tensor& inputs_embeds, const MaskArguments& given, MaskedBy masked,
                                     const Tensor& block_sequence_ids, std::int64_t sliding_window);

}  // namespace oometer
