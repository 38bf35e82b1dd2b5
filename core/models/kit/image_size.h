#pragma once

#include <cstdint>
#include <optional>
#include <utility>

#include "models/data.h"

namespace oometer {

class ConfigReader;

/// A job's `data.image_size` of a model that takes images of any size: height and width in pixels, or those that are
/// usual. None where the sample has no image, or after an error.
std::optional<std::pair<std::int64_t, std::int64_t>> read_image_size(ConfigReader& reader, const DataConfig& data,
                                                                     std::pair<std::int64_t, std::int64_t> usual);

}  // namespace oometer
