#pragma once

#include <memory>

#include "models/model.h"
#include "models/paddleocr_vl/config.h"

namespace oometer {

/// PaddleOCRVLForConditionalGeneration (transformers 5.23, models/paddleocr_vl/modeling_paddleocr_vl.py).
std::unique_ptr<Model> build_paddleocr_vl(Context& context, const PaddleOcrVlConfig& config, const DataConfig& data,
                                          const ModelOptions& options);

}  // namespace oometer
