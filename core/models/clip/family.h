#pragma once

#include "models/clip/config.h"
#include "models/family.h"

namespace oometer {

double largest_tensor_of(const ClipVisionConfig& config, const DataConfig& data);
/// Of a class that takes images, one or more, and nothing else.
ModelTraits clip_vision_traits(const ClipVisionConfig& config);

}  // namespace oometer
