#pragma once

#include "models/kit/text_family.h"

/// transformers 5.23, models/cohere2/modeling_cohere2.py, also inside another model.
namespace oometer {

/// class Cohere2Config.
TextConfig read_cohere2_config(ConfigReader& reader);
/// What Cohere2Model has of its own; its causal LM scales logits beside.
DecoderParts cohere2_text_parts(const TextConfig& config, const ModelOptions& options);

}  // namespace oometer
