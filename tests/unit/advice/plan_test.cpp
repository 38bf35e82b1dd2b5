#include "advice/plan.h"

#include <algorithm>
#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <nlohmann/json.hpp>

#include "jobs.h"

namespace oometer {
namespace {

using nlohmann::json;

json to_plan(const std::string& gpu, const json& parallel, const json& training = {{"precision", "bf16"}}) {
  return {{"version", 1},
          {"model",
           {{"config",
             {{"model_type", "llama"},
              {"hidden_size", 2048},
              {"intermediate_size", 5632},
              {"vocab_size", 32000},
              {"num_hidden_layers", 6},
              {"num_attention_heads", 16},
              {"num_key_value_heads", 16}}}}},
          {"data", {{"micro_batch_size", 4}, {"sequence_length", 1024}}},
          {"training", training},
          {"parallel", parallel},
          {"gpu", {{"name", gpu}}}};
}

json plans_of(const json& job) {
  const json answer = json::parse(plans_json(job.dump()));
  INFO(answer.dump().substr(0, 300));
  REQUIRE(answer.contains("plans"));
  REQUIRE(!answer["plans"].empty());
  return answer["plans"];
}

TEST_CASE("The fastest plan that fits comes first, and each is what its change gives", "[advice][time]") {
  const json job = to_plan("a100-40gb", {{"strategy", "ddp"}, {"data", 4}});
  const json plans = plans_of(job);
  CHECK(plans.size() == 5 * 2 * 3);  // layouts, checkpointing, micro-batches of 4, 2 and 1
  bool fitting = true;
  double last = 0;
  for (std::size_t i = 0; i < plans.size(); ++i) {
    const json& plan = plans[i];
    const bool fits = plan["verdict"] != "does-not-fit";
    CHECK((fitting || !fits));
    if (fits) CHECK(plan["step"] >= last);
    last = plan["step"];
    fitting = fits;
    CHECK(plan["micro_batch_size"].get<int>() * plan["gradient_accumulation_steps"].get<int>() == 4);
    if (i % 7 != 0) continue;
    json changed = job;
    changed.merge_patch(plan["change"]);
    const json report = json::parse(timed_estimate_json(changed.dump()));
    INFO(plan.dump());
    REQUIRE(report.contains("time"));
    CHECK(report["time"]["step"] == plan["step"]);
    CHECK(report["peak"]["total"] == plan["peak"]);
  }
  CHECK_FALSE(plans[0]["activation_checkpointing"]);
  CHECK(plans[0]["micro_batch_size"] == 4);
}

TEST_CASE("Over slow links, shards that are gathered once more cost time", "[advice][time]") {
  const json plans = plans_of(to_plan("l40s", {{"strategy", "ddp"}, {"data", 8}}));
  const auto fastest = [&](const char* layout) {
    const auto found =
        std::find_if(plans.begin(), plans.end(), [&](const json& plan) { return plan["layout"] == layout; });
    REQUIRE(found != plans.end());
    return (*found)["step"].get<double>();
  };
  CHECK(fastest("DDP") < fastest("ZeRO-2"));
  CHECK(fastest("DDP") < fastest("FSDP2"));
}

TEST_CASE("One GPU has no layouts, and a step that is cut stays a step", "[advice][time]") {
  const json plans =
      plans_of(to_plan("rtx-4090", json::object(), {{"precision", "bf16"}, {"gradient_accumulation_steps", 2}}));
  CHECK(plans.size() == 2 * 4);  // micro-batches of 8, 4, 2 and 1
  for (const json& plan : plans) CHECK(plan["layout"] == "");
}

TEST_CASE("What has no time has no plan", "[advice][time]") {
  const auto error = [](const json& job) {
    return json::parse(plans_json(job.dump()))["error"]["message"].get<std::string>();
  };
  CHECK(error(to_plan("mi300x", json::object())).find("no kernel of the architecture") != std::string::npos);
  json inference = to_plan("a100-40gb", json::object());
  inference["task"] = "inference";
  CHECK(error(inference).find("found inference") != std::string::npos);
  CHECK(json::parse(plans_json("{")).contains("error"));
}

}  // namespace
}  // namespace oometer
