#pragma once

#include "models/model.h"

namespace oometer {

/// What a ForConditionalGeneration's forward returns with labels and an attention_mask whose class takes the logits of
/// tokens that attend before it computes its loss (transformers 5.23, Qwen2AudioForConditionalGeneration.forward).
ModelOutputs attended_outputs(const Tensor& hidden_states, const Linear& lm_head, const ModelInputs& inputs,
                              const DataConfig& data, const char* class_name);

}  // namespace oometer
