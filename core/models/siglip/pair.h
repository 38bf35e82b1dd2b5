#pragma once

#include <memory>

#include "models/siglip/config.h"
#include "models/siglip/siglip.h"

namespace oometer {

/// SiglipModel, or SiglipVisionModel alone.
std::unique_ptr<Model> build_siglip(Context& context, const SiglipConfig& config, const DataConfig& data,
                                    const ModelOptions& options);

}  // namespace oometer
