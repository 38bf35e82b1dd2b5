#include <string>

#include "job/catalogue.h"
#include "job/names.h"
#include "job/read.h"

namespace oometer {

namespace {

constexpr Range kUsableBytes{1 << 20, std::int64_t{1} << 44};

Version read_version(ConfigReader& reader, const char* key, Version fallback, VersionRange known) {
  const std::string text = reader.text(key, to_string(fallback));
  const Result<Version> version = parse_version(text);
  if (version && *version >= known.first && *version <= known.last) return *version;
  known.last.patch = 0;
  reader.fail_found(
      key, "out-of-range",
      "a version in quotes from \"" + to_string(known.first) + "\" to \"" + to_string(known.last) + "\" belongs here");
  return fallback;
}

}  // namespace

Runtime read_runtime(ConfigReader reader) {
  const Framework framework = reader.choice("framework", Framework::transformers, kFrameworks);
  Runtime runtime = default_runtime(framework);
  runtime.torch = read_version(reader, "torch", runtime.torch, known_torch);
  runtime.transformers = read_version(reader, "transformers", runtime.transformers, known_transformers);
  if (framework == Framework::llava &&
      (runtime.transformers < Version{4, 37, 0} || runtime.transformers >= Version{4, 38, 0}))
    reader.fail_found("transformers", "inconsistent",
                      "the original LLaVA code runs on transformers 4.37, which belongs here with this framework");
  runtime.deepspeed = read_version(reader, "deepspeed", runtime.deepspeed, known_deepspeed);
  runtime.peft = read_version(reader, "peft", runtime.peft, known_peft);
  runtime.cudnn = reader.boolean("cudnn", runtime.cudnn);
  runtime.expandable_segments = reader.boolean("expandable_segments", false);
  runtime.experts = reader.choice("experts", runtime.experts, kExperts);
  if (runtime.expandable_segments && runtime.torch < Version{2, 1, 0}) {
    reader.fail_found("expandable_segments", "inconsistent", "torch 2.1 or later has them");
  }
  reader.finish();
  return runtime;
}

Calibration read_calibration(ConfigReader reader) {
  Calibration calibration;
  calibration.reserved = reader.number("reserved", 1, 0.5, 2);
  calibration.outside_allocator = reader.optional_integer("outside_allocator", {0, std::int64_t{64} << 30});
  reader.finish();
  return calibration;
}

Gpu read_gpu(ConfigReader reader) {
  const auto bytes = reader.optional_integer("usable_bytes", kUsableBytes);
  const std::string capability = reader.text("compute_capability", "9.0");
  const std::string name = reader.text("name", kDefaultGpu);
  reader.optional_integer("count", kReplicas);  // checked when the degrees are known
  Gpu gpu;
  if (reader.has("usable_bytes")) {
    if (reader.has("name")) reader.fail_found("name", "inconsistent", "name or usable_bytes belongs here, not both");
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
