#include "train/segments.h"

#include <catch2/catch_test_macros.hpp>
#include <nlohmann/json.hpp>
#include <string>

#include "job/estimate.h"
#include "job/parse.h"
#include "job/simulate.h"

namespace oometer {
namespace {

using nlohmann::json;

json llama_job(const json& checkpointing) {
  json job = json::parse(R"({
    "model": {"config": {"model_type": "llama", "hidden_size": 128, "intermediate_size": 256, "num_attention_heads": 4,
                         "num_hidden_layers": 6, "vocab_size": 100}},
    "data": {"micro_batch_size": 2, "sequence_length": 64}
  })");
  job["training"]["activation_checkpointing"] = checkpointing;
  return job;
}

Simulation simulation_with(const json& checkpointing) {
  const Result<Job> job = parse_job(llama_job(checkpointing).dump());
  if (!job) FAIL(job.error().message);
  return simulate(*job, resolve_behaviours(job->runtime));
}

std::string parse_error(const json& checkpointing) {
  const Result<Job> job = parse_job(llama_job(checkpointing).dump());
  return job ? "" : job.error().pointer + ": " + job.error().message;
}

std::int64_t peak(const Log& log) {
  std::int64_t now = 0, most = 0;
  for (const Event& event : log.events) {
    if (event.kind == EventKind::alloc) now += log.storages[event.storage].bytes;
    if (event.kind == EventKind::free) now -= log.storages[event.storage].bytes;
    most = std::max(most, now);
  }
  return most;
}

TEST_CASE("Single blocks as segments are transformers' own choice of blocks", "[train]") {
  const auto same = [](const json& a, const json& b) {
    const Log x = simulation_with(a).log, y = simulation_with(b).log;
    return x.events.size() == y.events.size() && peak(x) == peak(y);
  };
  CHECK(same({{"segments", {{"layers", {0, 1, 2, 3, 4, 5}}}}}, "non-reentrant"));
  CHECK(same({{"segments", {{"model.layers", {0, 2, 4}}}}}, {{"mode", "non-reentrant"}, {"every", 2}}));
  CHECK(same({{"mode", "reentrant"}, {"segments", {{"layers", {0, 3}}}}}, {{"mode", "reentrant"}, {"every", 3}}));
  CHECK_FALSE(same({{"segments", {{"layers", {{0, 2}}}}}}, {{"segments", {{"layers", {0, 1}}}}}));
}

TEST_CASE("Blocks of one region are all there again at once", "[train]") {
  const std::int64_t each = peak(simulation_with("non-reentrant").log);
  const std::int64_t halves = peak(simulation_with({{"segments", {{"layers", {{0, 3}, {3, 6}}}}}}).log);
  const std::int64_t together = peak(simulation_with({{"segments", {{"layers", {{0, 6}}}}}}).log);
  CHECK(each < halves);
  CHECK(halves < together);
}

TEST_CASE("Segments that are no segments are refused", "[train]") {
  CHECK(parse_error({{"segments", json::object()}}).find("stacks of blocks") != std::string::npos);
  CHECK(parse_error({{"segments", {{"layers", 3}}}}).find("/training/activation_checkpointing/segments/layers") == 0);
  for (const char* item : {"-1", "\"a\"", "[3, 3]", "[4, 2]", "[0, 1, 2]", "[0, 1.5]", "null", "1e9"})
    CHECK(parse_error({{"segments", {{"layers", {json::parse(item)}}}}}).find("expected") != std::string::npos);
  CHECK(parse_error({{"segments", {{"layers", {{0, 3}, 2}}}}}).find("in two regions") != std::string::npos);
  CHECK(parse_error({{"every", 2}, {"segments", {{"layers", {0}}}}}).find("leave one of them out") !=
        std::string::npos);
  CHECK(parse_error({{"mode", "none"}, {"segments", {{"layers", {0}}}}}).find("non-reentrant") != std::string::npos);
}

TEST_CASE("Stacks and blocks that the model does not have are named", "[train]") {
  const Simulation unknown = simulation_with({{"segments", {{"blocks", {0}}}}});
  REQUIRE(unknown.refusal);
  CHECK(unknown.refusal->pointer == "/training/activation_checkpointing/segments/blocks");
  CHECK(unknown.refusal->message == "expected a stack of blocks; the model has model.layers");
  const Simulation beyond = simulation_with({{"segments", {{"layers", {{4, 7}}}}}});
  REQUIRE(beyond.refusal);
  CHECK(beyond.refusal->message == "found block 6; model.layers has 6 blocks, from 0");
}

TEST_CASE("Segments are written as they were read", "[train]") {
  const Result<Job> job = parse_job(llama_job({{"segments", {{"layers", {5, {0, 3}}}}}}).dump());
  REQUIRE(job);
  const json written = json::parse(to_json(*job))["training"]["activation_checkpointing"];
  CHECK(written == json::parse(R"({"mode": "non-reentrant", "segments": {"layers": [[0, 3], [5, 6]]}})"));
  CHECK(*parse_job(to_json(*job)) == *job);
}

}  // namespace
}  // namespace oometer
