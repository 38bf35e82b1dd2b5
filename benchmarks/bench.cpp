// How long one whole answer takes natively: the job's text in, the report's text out, nothing kept between calls.
// Prints a JSON object, name -> median milliseconds, and the parts of the first; benchmarks/bench.mjs sets them beside
// WebAssembly and the promises.
#include <malloc.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "advice/checkpoint_plan.h"
#include "cuda/replay.h"
#include "job/estimate.h"
#include "job/parse.h"
#include "job/simulate.h"
#include "report/json.h"

namespace {

using Clock = std::chrono::steady_clock;

/// The median of `seconds` of calls.
template <typename Call>
double median_ms(int seconds, const Call& call) {
  std::vector<double> times;
  const Clock::time_point end = Clock::now() + std::chrono::seconds(seconds);
  while (times.size() < 5 || Clock::now() < end) {
    const Clock::time_point start = Clock::now();
    const auto result = call();
    times.push_back(std::chrono::duration<double, std::milli>(Clock::now() - start).count());
  }
  std::nth_element(times.begin(), times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2), times.end());
  return times[times.size() / 2];
}

/// Where the time of one answer goes.
nlohmann::ordered_json parts_of(const std::string& text) {
  const oometer::Job job = *oometer::parse_job(text);
  const oometer::Behaviours behaviours = oometer::resolve_behaviours(job.runtime);
  const oometer::Estimate answer = *oometer::estimate(job);
  const oometer::Log& log = answer.simulation.log;
  oometer::AllocatorOptions options;
  options.expandable_segments = behaviours.expandable_segments;
  const oometer::Replay unlimited = oometer::replay(log, options);
  return {
      {"parse", median_ms(1, [&] { return oometer::parse_job(text); })},
      {"simulate", median_ms(1, [&] { return oometer::simulate(job, behaviours); })},
      {"replay", median_ms(1, [&] { return oometer::replay(log, options); })},
      {"report", median_ms(1, [&] { return oometer::build_report(log, unlimited, unlimited, answer.input); })},
      {"JSON", median_ms(1, [&] { return oometer::to_json(answer.report, log, answer.input); })},
  };
}

/// The checkpoints of least memory, of chains of ever more blocks: "10000" -> milliseconds.
nlohmann::ordered_json checkpoint_plans() {
  nlohmann::ordered_json medians;
  std::mt19937 random(1);
  for (const std::size_t blocks : {std::size_t{1'000}, std::size_t{10'000}, std::size_t{100'000}}) {
    std::vector<oometer::ChainBlock> chain(blocks);
    for (oometer::ChainBlock& block : chain)
      block = {static_cast<std::int64_t>(1 + random() % 20), static_cast<std::int64_t>(random() % 300)};
    medians[std::to_string(blocks)] = median_ms(1, [&] { return oometer::least_memory(chain); });
  }
  return medians;
}

}  // namespace

int main(int argc, char** argv) {  // NOLINT(bugprone-exception-escape): it may end so
  if (argc != 2) {
    std::fprintf(stderr, "usage: oometer-bench benchmarks/jobs.json\n");
    return 2;
  }
  // A program that answers many questions keeps its memory. By default glibc hands it back to the system after each,
  // and the page faults of getting it again take longer than the answer.
  mallopt(M_MMAP_THRESHOLD, 32 << 20);  // the largest that it takes
  mallopt(M_TRIM_THRESHOLD, 1 << 30);
  nlohmann::ordered_json medians;
  nlohmann::ordered_json parts;
  std::ifstream file(argv[1]);
  for (const auto& entry : nlohmann::json::parse(file)) {
    const std::string job = entry.at("job").dump();
    if (const std::string report = oometer::estimate_json(job); report.starts_with("{\"error\"")) {
      std::fprintf(stderr, "%s: %s\n", entry.at("name").get<std::string>().c_str(), report.c_str());
      return 1;
    }
    medians[entry.at("name").get<std::string>()] = median_ms(2, [&] { return oometer::estimate_json(job); });
    if (parts.empty()) parts = parts_of(job);
  }
  std::puts(
      nlohmann::ordered_json{{"medians", medians}, {"parts", parts}, {"plans", checkpoint_plans()}}.dump().c_str());
}
