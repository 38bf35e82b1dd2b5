#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cuda/outside.h"
#include "result.h"

/// What can be chosen by name.
namespace oometer {

/// A model of presets/models, as lists show it.
struct ModelPreset {
  std::string id;
  std::string title;
  std::string description;
};

std::vector<ModelPreset> model_presets();
std::vector<Gpu> gpu_catalogue();

/// [{"id", "name", "vendor", "architecture", "compute_capability", "sm_count", "usable_bytes", "basis", "calibrated"}]
std::string gpu_list_json();

/// {"models": [{"id", "title", "description"}], "gpus": gpu_list_json's}
std::string presets_json();

/// A GPU by its id; the error suggests the closest.
Result<Gpu> find_gpu(std::string_view id);

/// A GPU that a job describes itself: its architecture and usual number of multiprocessors follow from the capability.
Gpu describe_gpu(std::int64_t usable_bytes, int major, int minor);

/// "9.0" -> {9, 0}; anything else is an error.
Result<std::pair<int, int>> parse_compute_capability(const std::string& text);

}  // namespace oometer
