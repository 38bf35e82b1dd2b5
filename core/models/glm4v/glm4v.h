#pragma once

#include <memory>

#include "models/glm4v/config.h"
#include "models/kit/decoder.h"
#include "models/model.h"

namespace oometer {

/// Glm4vForConditionalGeneration, Glm46VForConditionalGeneration, GlmOcrForConditionalGeneration and
/// Glm4vMoeForConditionalGeneration (transformers 5.23, models/glm4v/modeling_glm4v.py,
/// models/glm46v/modeling_glm46v.py, models/glm_ocr/modeling_glm_ocr.py, models/glm4v_moe/modeling_glm4v_moe.py).
std::unique_ptr<Model> build_glm4v(Context& context, const Glm4vConfig& config, const DataConfig& data,
                                   const ModelOptions& options);
/// What Glm4vTextModel has of its own.
DecoderParts glm4v_text_parts(const TextConfig& config, const ModelOptions& options);
/// The same of Glm4vMoeTextModel.
DecoderParts glm4v_moe_text_parts(const TextConfig& config, const ModelOptions& options);
/// rotary_emb.forward of both.
PositionEmbeddings glm4v_rotary(const LlamaRotaryEmbedding& rotary_emb, const Tensor& position_ids, DType dtype);

}  // namespace oometer
