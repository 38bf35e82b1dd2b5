#pragma once

#include "models/masking.h"

namespace oometer {

/// create_bidirectional_mask with encoder_hidden_states (transformers 5.23, masking_utils.py): of a decoder's tokens
/// that see an encoder's, whose mask is `given`'s. [b, 1, decoder's, encoder's]; null where none of these is padding.
Tensor create_cross_mask(const Tensor& inputs_embeds, const Tensor& encoder_hidden_states, const MaskArguments& given,
                         MaskedBy masked);

}  // namespace oometer
