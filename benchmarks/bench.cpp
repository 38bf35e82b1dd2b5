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

/// A job of an MLP of so many layers, each followed by a ReLU, as tools/export_graph.py writes its graph.
std::string job_of_layers(int layers) {
  using nlohmann::json;
  json graph = json::parse(R"({"format": "oometer-graph", "version": 1, "torch": "2.15.0", "batch": [2, 3],
    "modules": [["", "MLP"]], "parameters": [], "buffers": [], "inputs": [["float32", [{"batch": 1}, 256]]],
    "operators": []})");
  const auto name = [](int tensor) { return std::string("%").append(std::to_string(tensor)); };
  int input = 2 * layers;  // tensors are numbered: parameters, inputs, results
  for (int i = 0; i < layers; ++i) {
    const int module = 1 + i, result = input + 1;
    graph["modules"].push_back({std::string("layers.").append(std::to_string(i)), "Linear"});
    graph["parameters"].push_back({module, "weight", "float32", {256, 256}});
    graph["parameters"].push_back({module, "bias", "float32", {256}});
    graph["operators"].push_back({module, "linear", {name(input), name(2 * i), name(2 * i + 1)}, result, {input}});
    graph["operators"].push_back({0, "relu", {name(result)}, result + 1, {result}});
    input = result + 1;
  }
  graph["outputs"] = {{input, "float32", graph["inputs"][0][1]}};
  return json{{"model", {{"graph", graph}}}, {"data", {{"micro_batch_size", 64}}}}.dump();
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
  // False where there is no answer to measure.
  const auto measure = [&](const std::string& name, const std::string& job) {
    if (const std::string report = oometer::estimate_json(job); report.starts_with("{\"error\"")) {
      std::fprintf(stderr, "%s: %s\n", name.c_str(), report.c_str());
      return false;
    }
    medians[name] = median_ms(2, [&] { return oometer::estimate_json(job); });
    return true;
  };
  std::ifstream file(argv[1]);
  for (const auto& entry : nlohmann::json::parse(file)) {
    const std::string job = entry.at("job").dump();
    if (!measure(entry.at("name"), job)) return 1;
    if (parts.empty()) parts = parts_of(job);
  }
  if (!measure("graph", job_of_layers(1'000))) return 1;
  std::puts(
      nlohmann::ordered_json{{"medians", medians}, {"parts", parts}, {"plans", checkpoint_plans()}}.dump().c_str());
}
