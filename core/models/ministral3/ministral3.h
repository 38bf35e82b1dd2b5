#pragma once

#include "models/kit/decoder.h"
#include "models/kit/text_config.h"

/// transformers 5.23, models/ministral3/modeling_ministral3.py: Ministral3Model, which models with images have, too.
namespace oometer {

class ConfigReader;

TextConfig read_ministral3_config(ConfigReader& reader);
DecoderParts ministral3_parts(const TextConfig& config, const ModelOptions& options);
/// query_states * get_llama_4_attn_scale(...).to(query_states.dtype)
Tensor scale_by_positions(const Tensor& query, const PositionEmbeddings& positions);

}  // namespace oometer
