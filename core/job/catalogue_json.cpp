#include "job/catalogue.h"
#include "report/json_writer.h"

namespace oometer {

namespace {

void write_gpus(JsonWriter& json) {
  json.begin_array();
  constexpr const char* kBasis[] = {"measured", "derived", "nominal"};
  for (const Gpu& gpu : gpu_catalogue()) {
    json.begin_object();
    json.member("id", gpu.id);
    json.member("name", gpu.name);
    json.member("vendor", gpu.vendor == Vendor::nvidia ? "nvidia" : "amd");
    json.member("architecture", gpu.architecture);
    json.member("compute_capability", std::to_string(gpu.major) + "." + std::to_string(gpu.minor));
    json.member("sm_count", gpu.sm_count);
    json.member("usable_bytes", gpu.usable_bytes);
    json.member("basis", kBasis[static_cast<std::size_t>(gpu.basis)]);
    json.member("calibrated", gpu.calibrated);
    json.end_object();
  }
  json.end_array();
}

}  // namespace

std::string gpu_list_json() {
  JsonWriter json;
  write_gpus(json);
  return json.take();
}

std::string presets_json() {
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
  write_gpus(json);
  json.end_object();
  return json.take();
}

}  // namespace oometer
