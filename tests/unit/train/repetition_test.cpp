#include "train/repetition.h"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "../../reference/files.h"
#include "job/parse.h"
#include "job/simulate.h"
#include "trace/same_log.h"

namespace oometer {
namespace {

/// The job as it is, or with one option changed: `turn` decides.
nlohmann::json variant(nlohmann::json job, std::size_t turn) {
  static const std::vector<std::pair<const char*, nlohmann::json>> changes{
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
  const std::size_t i = turn % (changes.size() + 1);
  if (i > 0) job[nlohmann::json::json_pointer(changes[i - 1].first)] = changes[i - 1].second;
  return job;
}

TEST_CASE("An iteration that is written again is the one that execution gives", "[train]") {
  const std::string kind = GENERATE("single_gpu", "zero2", "distributed", "versions", "ranks");
  std::size_t turn = 0, compared = 0;
  const auto compare = [&](const std::filesystem::path& path) {
    std::ifstream file(path);
    for (std::string line; std::getline(file, line); ++turn) {
      const nlohmann::json job_json = variant(nlohmann::json::parse(line).at("job"), turn);
      const Result<Job> job = parse_job(job_json.dump());
      if (!job) continue;  // the change does not go with this job
      const Behaviours behaviours = resolve_behaviours(job->runtime);
      INFO(job_json.dump());
      CHECK(difference(simulate(*job, behaviours).log, simulate(*job, behaviours, false).log) == "");
      ++compared;
    }
  };
  compare(kReference / (kind + ".jsonl"));
  for (const std::filesystem::path& path : files_of_families(kind)) compare(path);
  CHECK(compared > turn / 2);
}

}  // namespace
}  // namespace oometer
