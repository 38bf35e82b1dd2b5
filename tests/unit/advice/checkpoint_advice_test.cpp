#include "advice/checkpoint_advice.h"

#include <catch2/catch_test_macros.hpp>
#include <nlohmann/json.hpp>

#include "job/estimate.h"
#include "job/timed.h"
#include "jobs.h"

namespace oometer {
namespace {

TEST_CASE("A stack's chain is what its blocks keep in the simulated run", "[advice]") {
  nlohmann::json description = nlohmann::json::parse(tiny_llama());
  description["model"]["config"]["num_hidden_layers"] = 6;
  const Job job = job_of(description.dump());
  const Result<std::vector<CheckpointAdvice>> advice = advise_checkpoints(job);
  REQUIRE(advice);
  REQUIRE(advice->size() == 1);
  const CheckpointAdvice& stack = advice->front();
  CHECK(stack.stack == "model.layers");
  REQUIRE(stack.chain.size() == 6);
  constexpr std::int64_t kHidden = 2 * 64 * 64 * 2;  // samples, tokens, width, bf16
  std::int64_t inside = 0;
  for (const ChainBlock& block : stack.chain) {
    CHECK(block.input == kHidden);
    CHECK(block.inside == stack.chain[1].inside);
    inside += block.inside;
  }
  // What a checkpoint before every block saves of the forward's end, the frontier's first plan has for certain.
  CHECK(stack.frontier.front().recomputed == 0);
  CHECK(stack.frontier.front().peak == inside + 6 * kHidden);
  CHECK(stack.least.peak <= 6 * kHidden + stack.chain[1].inside);
}

TEST_CASE("Frozen stacks keep nothing and get no plan", "[advice]") {
  const Result<std::vector<CheckpointAdvice>> advice = advise_checkpoints(job_of(tiny_llava(R"("stage": "finetune")")));
  REQUIRE(advice);
  REQUIRE(advice->size() == 1);
  CHECK(advice->front().stack == "model.language_model.layers");
  const auto full = advise_checkpoints(job_of(tiny_llava(R"("stage": "full")")));
  REQUIRE(full);
  CHECK(full->size() == 2);
}

TEST_CASE("As JSON, plans and errors alike", "[advice]") {
  const nlohmann::json advice = nlohmann::json::parse(checkpoint_advice_json(tiny_llama()));
  REQUIRE(advice.size() == 1);
  CHECK(advice[0]["blocks"].size() == 2);
  CHECK(advice[0]["least"]["segments"].back()[1] == 2);
  CHECK(advice[0]["frontier"][0]["recomputed"] == 0);
  CHECK(advice[0]["frontier"][0]["change"]["training"]["activation_checkpointing"] == "none");
  nlohmann::json job = nlohmann::json::parse(tiny_llama());
  job.merge_patch(advice[0]["frontier"].back()["change"]);
  CHECK(job["training"]["activation_checkpointing"]["segments"].contains("model.layers"));
  CHECK(estimate(job.dump()));
  CHECK(nlohmann::json::parse(checkpoint_advice_json("{}"))["error"]["pointer"] == "/model");
}

TEST_CASE("A plan costs what the job costs with its change", "[advice]") {
  nlohmann::json description = nlohmann::json::parse(tiny_llama());
  description["model"]["config"]["num_hidden_layers"] = 6;
  description["gpu"] = {{"name", "h100-80gb"}};
  const nlohmann::json advice = nlohmann::json::parse(checkpoint_advice_json(description.dump()));
  REQUIRE(advice.size() == 1);
  double before = 0;
  for (const nlohmann::json& plan : advice[0]["frontier"]) {
    nlohmann::json changed = description;
    changed.merge_patch(plan["change"]);
    const nlohmann::json report = nlohmann::json::parse(timed_estimate_json(changed.dump()));
    CHECK(plan["total"] == report["peak"]["total"]);
    CHECK(plan["step"] == report["time"]["step"]);
    CHECK(plan["high"] == report["time"]["high"]);
    CHECK(plan["step"].get<double>() > before);  // what is kept less is computed again
    before = plan["step"];
  }
  description["gpu"] = {{"usable_bytes", 80'000'000'000}, {"compute_capability", "9.0"}};
  const nlohmann::json untimed = nlohmann::json::parse(checkpoint_advice_json(description.dump()));
  CHECK(untimed[0]["least"]["step"].is_null());
  CHECK(untimed[0]["least"]["total"].is_number());
}

}  // namespace
}  // namespace oometer
