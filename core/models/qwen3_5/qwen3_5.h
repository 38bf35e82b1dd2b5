#pragma once

#include "models/kit/gated_delta_net.h"

/// transformers 5.23, models/qwen3_5/modeling_qwen3_5.py: the language model, whose classes Qwen3.5-MoE copies.
namespace oometer {

/// Qwen3_5TextConfig.
TextConfig read_qwen3_5_text(ConfigReader& reader);
/// Qwen3_5TextModel.
DecoderParts qwen3_5_text_parts(const TextConfig& config, const ModelOptions& options);

/// The same of a copy of it. `names` outlive the model.
DecoderParts parts_like_qwen3_5(const TextConfig& config, const ModelOptions& options, const GatedLayerNames& names);
/// Qwen3_5TextRotaryEmbedding.forward: angles of frame, row and column, of which the first take in the others'.
/// `position_ids`: [b, s], or [3, b, s].
PositionEmbeddings embed_interleaved_positions(const LlamaRotaryEmbedding& rotary_emb, const Tensor& position_ids,
                                               DType dtype);

}  // namespace oometer
