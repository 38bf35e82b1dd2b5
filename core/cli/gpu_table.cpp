#include "cli/gpu_table.h"

#include <cstdint>
#include <cstdio>

#include "cli/format.h"

namespace oometer::cli {

using OrderedJson = nlohmann::ordered_json;

namespace {

std::string signed_bytes(std::int64_t bytes) { return (bytes < 0 ? "-" : "") + bytes_text(bytes < 0 ? -bytes : bytes); }

std::string needed_text(const OrderedJson& needed) {
  if (needed.is_null()) return "more than 64";
  const auto label = needed.at("label").get<std::string>();
  return std::to_string(needed.at("gpus").get<std::int64_t>()) + (label.empty() ? "" : " with " + label);
}

}  // namespace

std::string gpu_table(const OrderedJson& answer) {
  char line[256];
  std::snprintf(line, sizeof line, "%-20s %12s  %-14s %12s %12s  %s\n", "GPU", "memory", "verdict", "to spare",
                "micro-batch", "needed");
  std::string out = line;
  for (const OrderedJson& row : answer.at("gpus")) {
    const auto id = row.at("id").get<std::string>();
    const std::string memory = bytes_text(row.at("usable_bytes").get<std::int64_t>());
    if (row.at("verdict").is_null()) {
      std::snprintf(line, sizeof line, "%-20s %12s  refused: ", id.c_str(), memory.c_str());
      out += line + row.at("refused").get<std::string>() + "\n";
      continue;
    }
    const OrderedJson& batch = row.at("largest_micro_batch");
    std::snprintf(line, sizeof line, "%-20s %12s  %-14s %12s %12s  %s\n", id.c_str(), memory.c_str(),
                  row.at("verdict").get<std::string>().c_str(),
                  signed_bytes(row.at("headroom").get<std::int64_t>()).c_str(),
                  batch.is_null() ? "none" : std::to_string(batch.get<std::int64_t>()).c_str(),
                  needed_text(row.at("needed")).c_str());
    out += line;
  }
  return out;
}

}  // namespace oometer::cli
