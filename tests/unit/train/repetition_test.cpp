#include "train/repetition.h"

#include <catch2/catch_test_macros.hpp>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "job/parse.h"
#include "job/simulate.h"
#include "trace/same_log.h"

namespace oometer {
namespace {

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
  for (const char* name : {"single_gpu", "zero2", "versions", "distributed", "real_ranks"}) {
    std::ifstream file(OOMETER_SOURCE_DIR "/tests/reference/" + std::string(name) + ".jsonl");
    for (std::string line; std::getline(file, line);) {
      const nlohmann::json reference = nlohmann::json::parse(line);
      for (const nlohmann::json& variant : variants(reference.at("job"))) {
        const Result<Job> job = parse_job(variant.dump());
        if (!job) continue;  // the change does not go with this job
        const Behaviours behaviours = resolve_behaviours(job->runtime);
        INFO(variant.dump());
        CHECK(difference(simulate(*job, behaviours).log, simulate(*job, behaviours, false).log) == "");
      }
    }
  }
}

}  // namespace
}  // namespace oometer
