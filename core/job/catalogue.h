#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cuda/outside.h"

namespace oometer {

/// A model of presets/models, as lists show it.
struct ModelPreset {
  std::string id;
  std::string title;
  std::string description;
};

std::vector<ModelPreset> model_presets();

/// presets/gpus.json in its order, and one of them by id.
std::vector<Gpu> gpu_catalogue();
std::optional<Gpu> find_gpu(std::string_view id);

}  // namespace oometer
