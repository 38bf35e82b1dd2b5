#include "cli/checkpoint_table.h"

#include <cstdint>
#include <cstdio>

#include "cli/format.h"

namespace oometer::cli {

using OrderedJson = nlohmann::ordered_json;

namespace {

std::string bytes(const OrderedJson& number) { return number.is_null() ? "-" : bytes_text(number.get<std::int64_t>()); }

std::string segments_text(const OrderedJson& plan) {
  std::string out;
  for (const OrderedJson& segment : plan.at("segments")) {
    if (!segment[2].get<bool>()) continue;
    const auto begin = segment[0].get<std::int64_t>(), last = segment[1].get<std::int64_t>() - 1;
    out += (out.empty() ? "" : ", ") + std::to_string(begin) + (last > begin ? "-" + std::to_string(last) : "");
  }
  return out.empty() ? "none" : out;
}

}  // namespace

std::string checkpoint_table(const OrderedJson& answer) {
  if (answer.empty()) return "no stack of blocks keeps anything for its backward\n";
  std::string out;
  char line[160];
  for (const OrderedJson& stack : answer) {
    out += (out.empty() ? "" : "\n") + stack.at("stack").get<std::string>() + ", " +
           std::to_string(stack.at("blocks").size()) + " blocks\n";
    std::snprintf(line, sizeof line, "%12s %14s %14s %12s  %s\n", "recomputed", "they keep", "whole job", "step",
                  "segments that are checkpointed");
    out += line;
    const OrderedJson& frontier = stack.at("frontier");
    for (const OrderedJson& plan : frontier.empty() ? OrderedJson::array({stack.at("least")}) : frontier) {
      const OrderedJson& step = plan.at("step");
      std::snprintf(line, sizeof line, "%12lld %14s %14s %12s  ",
                    static_cast<long long>(plan.at("recomputed").get<std::int64_t>()), bytes(plan.at("peak")).c_str(),
                    bytes(plan.at("total")).c_str(), step.is_null() ? "-" : seconds_text(step.get<double>()).c_str());
      out += line + segments_text(plan) + "\n";
    }
  }
  return out;
}

}  // namespace oometer::cli
