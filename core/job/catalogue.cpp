#include "job/catalogue.h"

#include <nlohmann/json.hpp>

#include "config/reader.h"
#include "job/presets.h"

namespace oometer {

using nlohmann::json;

std::string_view preset_text(std::string_view folder, std::string_view id) {
  const auto wanted = [&](const PresetFile& file) { return file.folder == folder && file.id == id; };
  for (const PresetFile& file : first_preset_files())
    if (wanted(file)) return file.text;
  for (const PresetFile& file : preset_files())
    if (wanted(file)) return file.text;
  return {};
}

namespace {

/// Our own files are right (tests read them all), so what is missing in one becomes a default.
json read(std::string_view text) {
  Result<json> document = parse_json(text);
  return document ? *std::move(document) : json::object();
}

Gpu to_gpu(std::string_view text) {
  const json document = read(text);
  Findings findings;
  ConfigReader reader(&document, "", Mode::lenient, findings);
  Gpu gpu;
  gpu.id = reader.text("id", "");
  gpu.name = reader.text("name", "");
  gpu.vendor = reader.choice("vendor", Vendor::nvidia, {{"nvidia", Vendor::nvidia}, {"amd", Vendor::amd}});
  gpu.architecture = reader.text("architecture", "");
  gpu.usable_bytes = reader.integer("usable_bytes", 0, {1, std::int64_t{1} << 50});
  gpu.sm_count = reader.integer("sm_count", gpu.sm_count);
  gpu.basis = reader.choice("basis", Basis::nominal,
                            {{"measured", Basis::measured}, {"derived", Basis::derived}, {"nominal", Basis::nominal}});
  gpu.calibrated = gpu.vendor == Vendor::nvidia;
  if (const auto capability = parse_compute_capability(reader.text("compute_capability", ""))) {
    gpu.major = capability->first;
    gpu.minor = capability->second;
  }
  return gpu;
}

}  // namespace

std::vector<ModelPreset> model_presets() {
  std::vector<ModelPreset> presets;
  for (const PresetFile& file : preset_files()) {
    if (file.folder != "models") continue;
    const json document = read(file.text);
    Findings findings;
    ConfigReader reader(&document, "", Mode::lenient, findings);
    presets.push_back({std::string(file.id), reader.text("title", file.id), reader.text("description", "")});
  }
  return presets;
}

std::vector<Gpu> gpu_catalogue() {
  std::vector<Gpu> gpus;
  for (const PresetFile& file : first_preset_files()) {
    if (file.folder == "gpus") gpus.push_back(to_gpu(file.text));
  }
  return gpus;
}

Result<Gpu> find_gpu(std::string_view id) {
  const std::string_view text = preset_text("gpus", id);
  if (!text.empty()) return to_gpu(text);
  std::vector<std::string_view> ids;
  for (const PresetFile& file : first_preset_files()) {
    if (file.folder == "gpus") ids.push_back(file.id);
  }
  const std::string_view near = closest(id, ids);
  return Error{
      "unknown-gpu", "",
      "found the unknown GPU " + quote(id) + "; " +
          (near.empty() ? "expected one that `oometer presets` lists, such as h100-80gb or a100-80gb, or usable_bytes"
                        : "did you mean \"" + std::string(near) + "\"?")};
}

Gpu describe_gpu(std::int64_t usable_bytes, int major, int minor) {
  // The largest common GPU of each architecture; what allocates by the number of multiprocessors is small.
  struct Architecture {
    int major;
    int minor;
    const char* name;
    std::int64_t sm_count;
  };
  constexpr Architecture kArchitectures[] = {
      {6, 0, "pascal", 56},  {7, 0, "volta", 80},       {7, 5, "turing", 68},
      {8, 0, "ampere", 108}, {8, 6, "ampere", 84},      {8, 9, "ada", 128},
      {9, 0, "hopper", 132}, {10, 0, "blackwell", 148}, {12, 0, "blackwell", 170}};
  Gpu gpu;
  for (const Architecture& architecture : kArchitectures) {
    if (std::pair(architecture.major, architecture.minor) <= std::pair(major, minor)) {
      gpu.architecture = architecture.name;
      gpu.sm_count = architecture.sm_count;
    }
  }
  gpu.name = "a GPU of compute capability " + std::to_string(major) + "." + std::to_string(minor);
  gpu.usable_bytes = usable_bytes;
  gpu.major = major;
  gpu.minor = minor;
  gpu.allocator_limit = true;
  return gpu;
}

Result<std::pair<int, int>> parse_compute_capability(const std::string& text) {
  const Result<Version> version = parse_version(text);
  if (!version || text.size() > 4 || version->major < 5 || version->major > 12 || version->minor > 9) {
    return Error{"out-of-range", "",
                 "found " + quote(text) + "; expected a compute capability from \"5.0\" to \"12.9\""};
  }
  return std::pair(version->major, version->minor);
}

}  // namespace oometer
