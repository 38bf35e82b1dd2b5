#include "adapters.h"

#include <emscripten/heap.h>

#include <nlohmann/json.hpp>

#include "job/catalogue.h"
#include "job/estimate.h"
#include "version.h"

namespace oometer::wasm {

using Json = nlohmann::ordered_json;

std::string estimate(const std::string& job) { return estimate_json(job); }

std::string presets() {
  Json models = Json::array();
  for (const ModelPreset& model : model_presets()) {
    models.push_back({{"id", model.id}, {"title", model.title}, {"description", model.description}});
  }
  Json gpus = Json::array();
  constexpr const char* kBasis[] = {"measured", "derived", "nominal"};
  for (const Gpu& gpu : gpu_catalogue()) {
    gpus.push_back({{"id", gpu.id},
                    {"name", gpu.name},
                    {"vendor", gpu.vendor == Vendor::nvidia ? "nvidia" : "amd"},
                    {"architecture", gpu.architecture},
                    {"usable_bytes", gpu.usable_bytes},
                    {"basis", kBasis[static_cast<std::size_t>(gpu.basis)]},
                    {"calibrated", gpu.calibrated}});
  }
  return Json{{"models", std::move(models)}, {"gpus", std::move(gpus)}}.dump();
}

std::string version_text() { return std::string(version()); }

double heap_bytes() { return static_cast<double>(emscripten_get_heap_size()); }

}  // namespace oometer::wasm
