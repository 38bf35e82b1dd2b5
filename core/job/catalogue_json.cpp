#include "job/catalogue.h"
#include "report/json_writer.h"

namespace oometer {

namespace {

void write_gpus(JsonWriter& writer) {
  writer.begin_array();
  constexpr const char* kBasis[] = {"measured", "derived", "nominal"};
  for (const Gpu& gpu : gpu_catalogue()) {
    writer.begin_object();
    writer.member("id", gpu.id);
    writer.member("name", gpu.name);
    writer.member("vendor", gpu.vendor == Vendor::nvidia ? "nvidia" : "amd");
    writer.member("architecture", gpu.architecture);
    writer.member("compute_capability", std::to_string(gpu.major) + "." + std::to_string(gpu.minor));
    writer.member("sm_count", gpu.sm_count);
    writer.member("usable_bytes", gpu.usable_bytes);
    writer.member("basis", kBasis[static_cast<std::size_t>(gpu.basis)]);
    writer.member("calibrated", gpu.calibrated);
    writer.end_object();
  }
  writer.end_array();
}

}  // namespace

std::string gpu_list_json() {
  JsonWriter writer;
  write_gpus(writer);
  return writer.take();
}

std::string presets_json() {
  JsonWriter writer;
  writer.begin_object();
  writer.key("models");
  writer.begin_array();
  for (const ModelPreset& model : model_presets()) {
    writer.begin_object();
    writer.member("id", model.id);
    writer.member("title", model.title);
    writer.member("description", model.description);
    writer.end_object();
  }
  writer.end_array();
  writer.key("gpus");
  write_gpus(writer);
  writer.end_object();
  return writer.take();
}

}  // namespace oometer
