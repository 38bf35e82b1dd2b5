#include "adapters.h"

#include <emscripten/heap.h>

#include "job/catalogue.h"
#include "job/estimate.h"
#include "report/json_writer.h"
#include "version.h"

namespace oometer::wasm {

std::string estimate(const std::string& job) { return estimate_json(job); }

std::string presets() {
  JsonWriter json;
  json.begin_object();
  json.key("models");
  json.begin_array();
  for (const ModelPreset& model : model_presets()) {
    json.begin_object();
    json.member("id", model.id);
    json.member("title", model.title);
    json.member("description", model.description);
    json.end_object();
  }
  json.end_array();
  json.key("gpus");
  json.begin_array();
  constexpr const char* kBasis[] = {"measured", "derived", "nominal"};
  for (const Gpu& gpu : gpu_catalogue()) {
    json.begin_object();
    json.member("id", gpu.id);
    json.member("name", gpu.name);
    json.member("vendor", gpu.vendor == Vendor::nvidia ? "nvidia" : "amd");
    json.member("architecture", gpu.architecture);
    json.member("usable_bytes", gpu.usable_bytes);
    json.member("basis", kBasis[static_cast<std::size_t>(gpu.basis)]);
    json.member("calibrated", gpu.calibrated);
    json.end_object();
  }
  json.end_array();
  json.end_object();
  return json.take();
}

std::string version_text() { return std::string(version()); }

double heap_bytes() { return static_cast<double>(emscripten_get_heap_size()); }

}  // namespace oometer::wasm
