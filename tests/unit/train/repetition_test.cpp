#include "train/repetition.h"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "job/parse.h"
#include "job/simulate.h"

namespace oometer {
namespace {

bool same(const Event& a, const Event& b) {
  return a.storage == b.storage && a.module == b.module && a.op == b.op && a.kind == b.kind && a.stream == b.stream;
}

bool same(const PhaseMark& a, const PhaseMark& b) {
  return a.first_event == b.first_event && a.name == b.name && a.iteration == b.iteration;
}

bool same(const Log& log_a, const StorageRecord& a, const Log& log_b, const StorageRecord& b) {
  return a.bytes == b.bytes && a.alloc_event == b.alloc_event && a.free_event == b.free_event && a.module == b.module &&
         a.dtype == b.dtype && a.role == b.role && a.saved == b.saved && a.recomputed == b.recomputed &&
         std::equal(log_a.dims.begin() + a.shape, log_a.dims.begin() + a.shape + a.ndim, log_b.dims.begin() + b.shape,
                    log_b.dims.begin() + b.shape + b.ndim);
}

/// The first event or storage that differs, in words; "" where there is none.
std::string difference(const Log& a, const Log& b) {
  if (a.events.size() != b.events.size() || a.storages.size() != b.storages.size() ||
      a.phases.size() != b.phases.size())
    return "sizes";
  for (std::size_t i = 0; i < a.events.size(); ++i)
    if (!same(a.events[i], b.events[i])) return "event " + std::to_string(i);
  for (std::size_t i = 0; i < a.storages.size(); ++i)
    if (!same(a, a.storages[i], b, b.storages[i])) return "storage " + std::to_string(i);
  for (std::size_t i = 0; i < a.phases.size(); ++i)
    if (!same(a.phases[i], b.phases[i])) return "phase " + std::to_string(i);
  return "";
}

/// The job as it is, and with one option changed at a time.
std::vector<nlohmann::json> variants(const nlohmann::json& job) {
  const std::pair<const char*, nlohmann::json> changes[] = {
      {"/training/activation_checkpointing", "non-reentrant"},
      {"/training/activation_checkpointing", "reentrant"},
      {"/training/gradient_accumulation_steps", 3},
      {"/training/precision", "amp-bf16"},
      {"/training/precision", "amp-fp16"},
      {"/training/attention", "eager"},
      {"/training/max_grad_norm", 1.0},
      {"/training/optimizer", {{"name", "sgd"}, {"momentum", 0.9}}},
      {"/runtime/torch", "2.14"},
  };
  std::vector<nlohmann::json> result{job};
  for (const auto& [pointer, value] : changes) {
    nlohmann::json changed = job;
    changed[nlohmann::json::json_pointer(pointer)] = value;
    result.push_back(std::move(changed));
  }
  return result;
}

TEST_CASE("An iteration that is written again is the one that execution gives", "[train]") {
  for (const char* name : {"single_gpu", "zero2"}) {
    std::ifstream file(OOMETER_SOURCE_DIR "/tests/reference/" + std::string(name) + ".jsonl");
    for (std::string line; std::getline(file, line);) {
      const nlohmann::json reference = nlohmann::json::parse(line);
      for (const nlohmann::json& variant : variants(reference.at("job"))) {
        const Result<Job> job = parse_job(variant.dump());
        if (!job) continue;  // the change does not go with this job
        const Behaviours behaviours = resolve_behaviours(job->runtime);
        INFO(variant.dump());
        CHECK(difference(simulate(*job, behaviours).log, simulate(*job, behaviours, SecondIteration::execute).log)
                  .empty());
      }
    }
  }
}

}  // namespace
}  // namespace oometer
