#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "job/catalogue.h"
#include "job/names.h"
#include "job/read.h"
#include "job/settings/fields.h"

namespace oometer {

namespace {

/// What neither "torch" nor "packages" says: each operation apart; the Hub's are refused.
[[gnu::noinline]] Kernels read_kernels(ConfigReader& runtime) {
  if (!runtime.is_object("kernels")) {
    runtime.fail_found("kernels", "not-modelled",
                       "kernels of the Hub (use_kernels=True) are not supported yet; expected torch or packages");
    return Kernels::torch;
  }
  ConfigReader reader = runtime.object("kernels");
  Kernels installed = Kernels::torch;
  const auto read = [&](const char* key, Kernels operation) {
    if (reader.choice(key, false, settings::names<settings::kOperationKernels>)) installed = installed | operation;
  };
  read("linear_attention", Kernels::linear_attention);
  read("mamba", Kernels::mamba | Kernels::mamba2);
  read("causal_conv1d", Kernels::causal_conv1d);
  reader.finish();
  return installed;
}

}  // namespace

Runtime read_runtime(ConfigReader reader) {
  const Framework framework = reader.choice("framework", Framework::transformers, kFrameworks);
  Runtime runtime = default_runtime(framework);
  read_fields(reader, settings::runtime_section, runtime);
  if (framework == Framework::llava &&
      (runtime.transformers < Version{4, 37, 0} || runtime.transformers >= Version{4, 38, 0}))
    reader.fail_found("transformers", "inconsistent", "expected 4.37: the original LLaVA code runs on it");
  if (runtime.expandable_segments && runtime.torch < Version{2, 1, 0}) {
    reader.fail_found("expandable_segments", "inconsistent", "torch 2.1 or later has them");
  }
  if (runtime.kernels == Kernels::hub || reader.is_object("kernels")) runtime.kernels = read_kernels(reader);
  reader.finish();
  return runtime;
}

Calibration read_calibration(ConfigReader reader) {
  Calibration calibration;
  read_fields(reader, settings::calibration_section, calibration);
  reader.finish();
  return calibration;
}

CostConfig read_cost(ConfigReader reader) {
  CostConfig cost;
  read_fields(reader, settings::cost_section, cost);
  reader.finish();
  return cost;
}

namespace {

/// "512GiB" in bytes; none: it says no size.
[[gnu::noinline]] std::optional<std::int64_t> bytes_of_text(std::string_view text) {
  double number = 0, fraction = 0;
  std::size_t at = 0;
  for (; at < text.size() && (text[at] == '.' || (text[at] >= '0' && text[at] <= '9')); ++at) {
    if (text[at] == '.') {
      if (fraction != 0) return std::nullopt;
      fraction = 1;
      continue;
    }
    if (fraction != 0) fraction /= 10;
    number = fraction != 0 ? number + fraction * (text[at] - '0') : 10 * number + (text[at] - '0');
  }
  if (at == 0) return std::nullopt;
  while (at < text.size() && text[at] == ' ') ++at;
  constexpr std::pair<std::string_view, double> kUnits[] = {{"GiB", 0x1p30}, {"GB", 1e9},     {"TiB", 0x1p40},
                                                            {"TB", 1e12},    {"MiB", 0x1p20}, {"MB", 1e6}};
  for (const auto& [unit, bytes] : kUnits)
    if (text.substr(at) == unit && number * bytes < 0x1p60) return static_cast<std::int64_t>(number * bytes);
  return std::nullopt;
}

}  // namespace

HostConfig read_host(ConfigReader reader) {
  HostConfig host;
  if (const nlohmann::json* memory = reader.find("memory"); memory != nullptr && memory->is_string()) {
    host.memory = bytes_of_text(memory->get_ref<const std::string&>());
    constexpr double kLeast = 0x1p30, kMost = 0x1p50;
    const double bytes = static_cast<double>(host.memory.value_or(0));
    if (bytes < kLeast || bytes > kMost)
      reader.fail_found("memory", "invalid",
                        "expected 1 GiB to 1 PiB as bytes or as text with its unit: \"512GiB\", \"1.5TB\"");
  } else {
    host.memory = read_integer(reader, settings::host_section, "memory");
  }
  read_fields(reader, settings::host_section, host);
  reader.finish();
  return host;
}

Gpu read_gpu(ConfigReader reader) {
  const auto bytes = read_integer(reader, settings::gpu_section, "usable_bytes");
  const std::string capability = reader.text("compute_capability", "9.0");
  const std::string name = reader.text("name", kDefaultGpu);
  read_integer(reader, settings::gpu_section, "count");  // checked when the degrees are known
  Gpu gpu;
  if (reader.has("usable_bytes")) {
    if (reader.has("name")) reader.fail_found("name", "inconsistent", "expected name or usable_bytes, not both");
    const auto parsed = parse_compute_capability(capability);
    if (!parsed) reader.fail("compute_capability", parsed.error().code.c_str(), parsed.error().message);
    if (bytes && parsed) gpu = describe_gpu(*bytes, parsed->first, parsed->second);
  } else {
    if (reader.has("compute_capability")) {
      reader.fail_found("compute_capability", "inconsistent", "the named GPU has its own: leave it out");
    }
    if (const Result<Gpu> found = find_gpu(name)) {
      gpu = *found;
    } else {
      reader.fail("name", found.error().code.c_str(), found.error().message);
    }
  }
  reader.finish();
  return gpu;
}

}  // namespace oometer
