// How long one whole answer takes natively: the job's text in, the report's text out, nothing kept between calls.
// Prints a JSON object, name -> median milliseconds; benchmarks/bench.mjs sets it beside WebAssembly and the promises.
#include <malloc.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "job/estimate.h"

namespace {

using Clock = std::chrono::steady_clock;

/// The median of some two seconds of calls.
double median_ms(const std::string& job) {
  std::vector<double> times;
  const Clock::time_point end = Clock::now() + std::chrono::seconds(2);
  while (times.size() < 5 || Clock::now() < end) {
    const Clock::time_point start = Clock::now();
    const std::string report = oometer::estimate_json(job);
    times.push_back(std::chrono::duration<double, std::milli>(Clock::now() - start).count());
  }
  std::nth_element(times.begin(), times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2), times.end());
  return times[times.size() / 2];
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: oometer-bench benchmarks/jobs.json\n");
    return 2;
  }
  // A program that answers many questions keeps its memory. By default glibc hands it back to the system after each,
  // and the page faults of getting it again take longer than the answer.
  mallopt(M_MMAP_THRESHOLD, 1 << 30);
  mallopt(M_TRIM_THRESHOLD, 1 << 30);
  nlohmann::ordered_json medians;
  std::ifstream file(argv[1]);
  for (const auto& entry : nlohmann::json::parse(file)) {
    const std::string job = entry.at("job").dump();
    if (const std::string report = oometer::estimate_json(job); report.starts_with("{\"error\"")) {
      std::fprintf(stderr, "%s: %s\n", entry.at("name").get<std::string>().c_str(), report.c_str());
      return 1;
    }
    medians[entry.at("name").get<std::string>()] = median_ms(job);
  }
  std::puts(medians.dump().c_str());
}
