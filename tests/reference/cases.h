#pragma once

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cuda/replay.h"
#include "job/estimate.h"
#include "job/parse.h"
#include "job/simulate.h"
#include "report/report.h"

/// The recorded cases (README.md) and their runs.
namespace oometer {

struct ReferenceCase {
  std::string name;
  Job job;
  nlohmann::json truth;
};

/// Whose optimizer's parameters were in one group: the oracle's loop, not HF Trainer's. A job that says nothing has
/// two.
enum class Groups { as_the_job_says, one };

inline std::vector<ReferenceCase> read_cases(const std::string& file, Groups groups) {
  std::vector<ReferenceCase> cases;
  std::ifstream input(std::string(OOMETER_SOURCE_DIR) + "/tests/reference/" + file);
  for (std::string line; std::getline(input, line);) {
    nlohmann::json json = nlohmann::json::parse(line);
    INFO(json["name"]);
    if (groups == Groups::one) json["job"]["training"]["optimizer"]["param_groups"] = 1;
    Result<Job> job = parse_job(json["job"].dump());
    if (!job && job.error().message.find("not modelled yet") != std::string::npos) {
      WARN(json["name"] << " is left out: " << job.error().message);
      continue;
    }
    if (!job) FAIL(job.error().pointer << ": " << job.error().message);
    cases.push_back({json["name"], std::move(*job), std::move(json["truth"])});
  }
  return cases;
}

struct Run {
  Simulation simulation;
  Replay replay;
};

inline Run run(const Job& job, const Behaviours& behaviours) {
  Run result;
  result.simulation = simulate(job, behaviours);
  REQUIRE_FALSE(result.simulation.log.overflow);
  AllocatorOptions options;
  options.expandable_segments = behaviours.expandable_segments;
  result.replay = replay(result.simulation.log, options);
  return result;
}

inline Run run(const Job& job) { return run(job, resolve_behaviours(job.runtime)); }

inline MemoryStats highest(const MemoryStats& a, const MemoryStats& b) {
  return {std::max(a.allocated, b.allocated), std::max(a.reserved, b.reserved), std::max(a.requested, b.requested),
          std::max(a.active, b.active)};
}

/// The peak of an iteration.
inline MemoryStats iteration_peak(const Log& log, const Replay& replay, int iteration) {
  MemoryStats peak;
  for (std::size_t i = 0; i < log.phases.size(); ++i)
    if (log.phases[i].iteration == iteration) peak = highest(peak, replay.phases[i]);
  return peak;
}

/// The peak of a phase of an iteration.
inline MemoryStats phase_peak(const Log& log, const Replay& replay, int iteration, PhaseName phase) {
  MemoryStats peak;
  for (std::size_t i = 0; i < log.phases.size(); ++i)
    if (log.phases[i].iteration == iteration && log.phases[i].name == phase) peak = highest(peak, replay.phases[i]);
  return peak;
}

inline double share(std::int64_t difference, std::int64_t of) {
  return std::abs(static_cast<double>(difference)) / static_cast<double>(of);
}

/// How far off, as a share of the truth.
inline double error_of(std::int64_t got, const nlohmann::json& truth) {
  const auto expected = truth.get<std::int64_t>();
  return share(got - expected, expected);
}

inline double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values.empty() ? 0 : values[values.size() / 2];
}

inline constexpr std::array kStepPhases{PhaseName::forward, PhaseName::backward, PhaseName::optimizer};

}  // namespace oometer
