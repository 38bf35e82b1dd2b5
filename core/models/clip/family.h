#pragma once

#include "models/clip/config.h"
#include "models/family.h"

namespace oometer {

double largest_tensor_of(const ClipVisionConfig& config, const DataConfig& data);
double largest_tensor_of(const ClipTextConfig& config, const DataConfig& data);
/// What a class that pairs texts with images has beside its tower.
void pair_with_texts(ModelTraits& traits, const ClipTextConfig& text);
/// Of a class that takes images, one or more, and nothing else.
ModelTraits clip_vision_traits(const ClipVisionConfig& config);

}  // namespace oometer
