#pragma once

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "cuda/replay.h"
#include "files.h"
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

inline std::vector<ReferenceCase> read_cases(const std::filesystem::path& file, Groups groups) {
  std::vector<ReferenceCase> cases;
  std::ifstream input(kReference / file);
  for (std::string line; std::getline(input, line);) {
    nlohmann::json json = nlohmann::json::parse(line);
    INFO(json["name"]);
    if (groups == Groups::one) json["job"]["training"]["optimizer"]["param_groups"] = 1;
    Result<Job> job = parse_job(json["job"].dump());
    if (!job) FAIL(job.error().pointer << ": " << job.error().message);
    cases.push_back({json["name"], std::move(*job), std::move(json["truth"])});
  }
  return cases;
}

/// The cases of a kind of all families.
inline std::vector<ReferenceCase> read_cases_of_families(const std::string& kind, Groups groups) {
  std::vector<ReferenceCase> cases;
  for (const std::filesystem::path& file : files_of_families(kind))
    for (ReferenceCase& c : read_cases(file, groups)) cases.push_back(std::move(c));
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
  result.replay = replay(result.simulation.log, allocator_options(behaviours, job.runtime));
  return result;
}

inline Run run(const Job& job) { return run(job, resolve_behaviours(job.runtime)); }

inline MemoryStats highest(const MemoryStats& a, const MemoryStats& b) {
  return {std::max(a.allocated, b.allocated), std::max(a.reserved, b.reserved)};
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

/// The most bytes alive, as they were asked for, while each of the log's phases lasts: what no allocator's rounding or
/// slack is in.
inline std::vector<std::int64_t> requested_peaks(const Log& log) {
  std::vector<std::int64_t> peaks;
  std::vector<bool> used_elsewhere(log.storages.size(), false);
  std::int64_t alive = 0, waiting = 0;  // a block that another stream used is let go at the next alloc
  for (std::uint32_t i = 0; i < log.events.size(); ++i) {
    while (peaks.size() < log.phases.size() && log.phases[peaks.size()].first_event == i) peaks.push_back(alive);
    const Event& event = log.events[i];
    switch (event.kind) {
      case EventKind::alloc:
        alive += log.storages[event.storage].bytes - std::exchange(waiting, 0);
        break;
      case EventKind::free:
        if (used_elsewhere[event.storage])
          waiting += log.storages[event.storage].bytes;
        else
          alive -= log.storages[event.storage].bytes;
        break;
      case EventKind::record_stream:
        if (event.stream != log.events[log.storages[event.storage].alloc_event].stream)
          used_elsewhere[event.storage] = true;
        break;
      case EventKind::empty_cache:
        alive -= std::exchange(waiting, 0);
        break;
    }
    if (!peaks.empty()) peaks.back() = std::max(peaks.back(), alive);
  }
  peaks.resize(log.phases.size(), alive);
  return peaks;
}

/// The same of a phase of an iteration.
inline std::int64_t requested_peak(const Log& log, int iteration, PhaseName phase) {
  const std::vector<std::int64_t> peaks = requested_peaks(log);
  std::int64_t peak = 0;
  for (std::size_t i = 0; i < peaks.size(); ++i)
    if (log.phases[i].iteration == iteration && log.phases[i].name == phase) peak = std::max(peak, peaks[i]);
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
