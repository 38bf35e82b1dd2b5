#include "cli/plan_table.h"

#include <cstdint>
#include <cstdio>

#include "cli/format.h"

namespace oometer::cli {

std::string plan_table(const nlohmann::ordered_json& answer) {
  char line[256];
  std::snprintf(line, sizeof line, "%-8s %-13s %12s %12s %12s %12s  %-12s %12s\n", "layout", "checkpointing",
                "micro-batch", "micro-steps", "step", "tokens/s", "verdict", "to spare");
  std::string out = line;
  for (const nlohmann::ordered_json& plan : answer.at("plans")) {
    const auto layout = plan.at("layout").get<std::string>();
    const auto headroom = plan.at("headroom").get<std::int64_t>();
    const std::string spare = (headroom < 0 ? "-" : "") + bytes_text(headroom < 0 ? -headroom : headroom);
    std::snprintf(line, sizeof line, "%-8s %-13s %12lld %12lld %12s %12.0f  %-12s %12s\n",
                  layout.empty() ? "-" : layout.c_str(), plan.at("activation_checkpointing").get<bool>() ? "yes" : "no",
                  static_cast<long long>(plan.at("micro_batch_size").get<std::int64_t>()),
                  static_cast<long long>(plan.at("gradient_accumulation_steps").get<std::int64_t>()),
                  seconds_text(plan.at("step").get<double>()).c_str(), plan.at("tokens_per_second").get<double>(),
                  plan.at("verdict").get<std::string>().c_str(), spare.c_str());
    out += line;
  }
  return out;
}

}  // namespace oometer::cli
