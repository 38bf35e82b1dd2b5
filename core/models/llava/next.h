#pragma once

#include <cstdint>
#include <vector>

#include "models/data.h"
#include "models/llava/config.h"
#include "tensor/tensor_list.h"

/// What LLaVA-NeXT adds to LLaVA (transformers 5.23, models/llava_next/modeling_llava_next.py).
namespace oometer {

class ConfigReader;

/// image_grid_pinpoints, [[height, width], ...], in multiples of the tower's image_size; LlavaNextConfig.__post_init__
/// has the default.
std::vector<LlavaConfig::Resolution> read_grid_pinpoints(ConfigReader& reader, std::int64_t tile);

/// LlavaNextModel.pack_image_features, each image's tiles [tiles, patches, width] become
/// [tokens, width], the whole image's first, then the tiles' rows, each followed by `image_newline`.
TensorList pack_image_features(const LlavaConfig& config, const DataConfig& data, const TensorList& image_features,
                               const Tensor& image_newline);

}  // namespace oometer
