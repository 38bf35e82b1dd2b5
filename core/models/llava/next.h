#pragma once

#include "models/data.h"
#include "models/llava/config.h"
#include "tensor/tensor_list.h"

/// What LLaVA-NeXT adds to LLaVA (transformers 5.23, models/llava_next/modeling_llava_next.py).
namespace oometer {

/// LlavaNextModel.pack_image_features, each image's tiles [tiles, patches, width] become
/// [tokens, width], the whole image's first, then the tiles' rows, each followed by `image_newline`.
TensorList pack_image_features(const LlavaConfig& config, const DataConfig& data, const TensorList& image_features,
                               const Tensor& image_newline);

}  // namespace oometer
