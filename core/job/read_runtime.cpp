#include <string>

#include "job/catalogue.h"
#include "job/names.h"
#include "job/read.h"
#include "job/settings/fields.h"

namespace oometer {

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
  reader.finish();
  return runtime;
}

Calibration read_calibration(ConfigReader reader) {
  Calibration calibration;
  read_fields(reader, settings::calibration_section, calibration);
  reader.finish();
  return calibration;
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
