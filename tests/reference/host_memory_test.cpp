#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "cases.h"
#include "job/estimate.h"

/// Host memory of real processes (tools/host_memory.py): the resident set's peak, by phase.
namespace oometer {
namespace {

/// What a process needs, and what it has resident.
std::map<std::string, std::pair<std::int64_t, std::int64_t>> host_phases_of(nlohmann::json job) {
  job["host"]["gpus"] = 1;
  // Data workers are other processes.
  if (const auto args = "/training/loop/args"_json_pointer; job.contains(args))
    job[args].erase("dataloader_num_workers");
  ReportOptions options;
  options.host = true;
  options.attribution = false;
  const Result<Estimate> estimate = oometer::estimate(job.dump(), options);
  REQUIRE(estimate);
  std::map<std::string, std::pair<std::int64_t, std::int64_t>> phases;
  for (const HostPhase& phase : estimate->report.host->phases) phases[phase.name] = {phase.needs(1), phase.resident()};
  return phases;
}

TEST_CASE("A process's peak in host memory is within 5 % of the recorded one's", "[reference]") {
  std::ifstream input(std::string(OOMETER_SOURCE_DIR) + "/tests/reference/host_memory.jsonl");
  int compared = 0;
  for (std::string line; std::getline(input, line);) {
    const nlohmann::json row = nlohmann::json::parse(line);
    const auto phases = host_phases_of(row.at("job"));
    for (const auto& [name, truth] : row.at("truth").at("phases").items()) {
      const auto found = phases.find(name);
      CAPTURE(row.at("name").get<std::string>(), name);
      if (found == phases.end() && name == "wrapping") {  // where it needs more than training, a phase of its own
        std::int64_t most = 0;
        for (const auto& [_, bytes] : phases) most = std::max(most, bytes.first);
        CHECK(truth.at("anonymous").get<double>() < 1.05 * static_cast<double>(most));
        continue;
      }
      REQUIRE(found != phases.end());
      const auto [needs, resident] = found->second;
      const double anonymous = truth.at("anonymous"), rss = truth.at("rss");
      CAPTURE(needs, anonymous, resident, rss);
      CHECK(std::abs(static_cast<double>(resident) / rss - 1) < 0.05);
      ++compared;
    }
  }
  CHECK(compared > 0);
}

}  // namespace
}  // namespace oometer
