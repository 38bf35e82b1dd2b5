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

/// The job as it is, and with two options changed, one at a time: which two, `turn` decides.
std::vector<nlohmann::json> variants(const nlohmann::json& job, std::size_t turn) {
  static const std::vector<std::pair<const char*, nlohmann::json>> changes{
      {"/training/activation_checkpointing", "non-reentrant"},
      {"/training/precision", "amp-bf16"},
      {"/training/gradient_accumulation_steps", 3},
      {"/training/attention", "eager"},
      {"/training/activation_checkpointing", "reentrant"},
      {"/training/precision", "amp-fp16"},
      {"/training/max_grad_norm", 1.0},
      {"/training/optimizer", {{"name", "sgd"}, {"momentum", 0.9}}},
      {"/runtime/torch", "2.14"},
  };
  std::vector<nlohmann::json> result(3, job);
  for (const std::size_t i : {1U, 2U}) {
    const auto& [pointer, value] = changes[(2 * turn + i) % changes.size()];
    result[i][nlohmann::json::json_pointer(pointer)] = value;
  }
  return result;
}

TEST_CASE("An iteration that is written again is the one that execution gives", "[train]") {
  std::size_t turn = 0;
  for (const char* name : {"single_gpu", "zero2", "versions", "distributed", "real_ranks"}) {
    std::ifstream file(OOMETER_SOURCE_DIR "/tests/reference/" + std::string(name) + ".jsonl");
    for (std::string line; std::getline(file, line); ++turn) {
      const nlohmann::json reference = nlohmann::json::parse(line);
      for (const nlohmann::json& variant : variants(reference.at("job"), turn)) {
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
