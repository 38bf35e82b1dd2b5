#include "cli/resolved_table.h"

#include <cstdio>

namespace oometer::cli {

using OrderedJson = nlohmann::ordered_json;

std::string resolved_table(const OrderedJson& answer) {
  if (answer.at("resolved").empty()) return "The job has no DeepSpeed or accelerate configuration.\n";
  char line[512];
  std::snprintf(line, sizeof line, "%-72s %-20s %-8s %s\n", "key", "value", "origin", "memory depends on it");
  std::string out = line;
  for (const OrderedJson& key : answer.at("resolved")) {
    const auto from = key.at("from").get<std::string>();
    const OrderedJson& matters = key.at("matters");
    const std::string word = matters.is_string() ? matters.get<std::string>() : matters.get<bool>() ? "yes" : "no";
    std::snprintf(line, sizeof line, "%-72s %-20s %-8s %s%s\n", key.at("pointer").get<std::string>().c_str(),
                  key.at("value").dump().c_str(), key.at("origin").get<std::string>().c_str(), word.c_str(),
                  from.empty() ? "" : ("; from " + from).c_str());
    out += line;
  }
  return out;
}

}  // namespace oometer::cli
