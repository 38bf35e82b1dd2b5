#include "advice/combination.h"

#include <catch2/generators/catch_generators.hpp>
#include <nlohmann/json.hpp>

#include "advice/changes.h"
#include "advice/grid.h"
#include "advice/trial.h"
#include "job/settings/setting.h"
#include "jobs.h"

namespace oometer {
namespace {

using nlohmann::json;

const Tier kSameTraining{{Price::nothing, Price::time}, {}};
const Tier kOtherTraining{{Price::nothing, Price::time, Price::numerics, Price::training},
                          {Price::numerics, Price::training}};
const Tier kOtherHardware{{Price::nothing, Price::time, Price::hardware}, {Price::hardware}};

/// As many of a job's choices as make a grid that can be tried as a whole.
std::vector<Alternatives> some_of(std::vector<Alternatives> choices, std::size_t first) {
  std::vector<Alternatives> some;
  std::size_t grid = 1;
  for (std::size_t i = 0; i < choices.size(); ++i) {
    Alternatives& choice = choices[(first + i) % choices.size()];
    if (choice.changes.size() > 3) choice.changes.erase(choice.changes.begin() + 3, choice.changes.end());
    if (grid * (choice.changes.size() + 1) > 400) continue;
    grid *= choice.changes.size() + 1;
    some.push_back(std::move(choice));
  }
  return some;
}

json on(const std::string& text, std::int64_t usable_bytes) {
  json job = json::parse(text);
  job["gpu"] = {{"usable_bytes", usable_bytes}, {"compute_capability", "9.0"}};
  return job;
}

}  // namespace

TEST_CASE("What the advisor calls cheapest is the cheapest of the whole grid", "[advice]") {
  const std::string data = R"("micro_batch_size": 8, "sequence_length": 256)";
  const std::string eager = R"("precision": "fp32", "attention": "eager", "optimizer": {"implementation": "foreach"})";
  const std::string ddp = R"(, "parallel": {"strategy": "ddp", "data": 2})";
  const std::string zero = R"(, "parallel": {"strategy": "deepspeed", "zero_stage": 2, "data": 2})";
  const std::vector<std::string> jobs = {tiny_llama(eager, "", data), tiny_llama(eager, ddp, data),
                                         tiny_llama(kInBf16, zero, data), tiny_llava(eager, "", data)};
  const std::size_t first = GENERATE(0U, 3U, 6U);
  for (const std::string& text : jobs) {
    const std::optional<Trial> now = try_job(json::parse(text));
    REQUIRE(now);
    for (const std::int64_t percent : {97, 90, 75}) {
      const json job = on(text, now->total * percent / 100);
      INFO(job);
      const std::vector<Alternatives> choices = some_of(possible_changes(job_of(job.dump()), job), first);
      for (const Tier* tier : {&kSameTraining, &kOtherTraining, &kOtherHardware}) {
        Selections selections(job, choices);
        const std::optional<Selection> found = cheapest_selection(selections, *tier);
        std::optional<Selection> best = cheapest_of_all(selections, *tier, false);
        if (!best) best = cheapest_of_all(selections, *tier, true);
        REQUIRE(found.has_value() == best.has_value());
        if (found) CHECK(selections.cost(*found) == selections.cost(*best));
      }
    }
  }
}

TEST_CASE("LLaVA-1.5 13B fits four A100s of 40 GB", "[advice]") {
  const json job = json::parse(R"({"model": {"preset": "llava-1.5-13b"}, "training": {"stage": "finetune"},
    "gpu": {"name": "a100-40gb"}, "parallel": {"strategy": "deepspeed", "zero_stage": 2, "data": 4}})");
  const Result<Advice> advice = advise(job.dump());
  REQUIRE(advice);
  const std::vector<Combination>& found = advice->combinations;
  REQUIRE(found.size() == 3);
  const auto labels = [](const Combination& combination) {
    std::vector<std::string> out;
    for (const Combination::Part& part : combination.parts) out.push_back(part.label);
    return out;
  };
  CHECK(labels(found[0]) == std::vector<std::string>{"ZeRO-3", "Optimizer in host memory"});
  CHECK(found[0].price == Price::time);
  CHECK(labels(found[1]) == std::vector<std::string>{"ZeRO-3", "LoRA on every linear layer, rank 16"});
  CHECK(found[1].price == Price::training);
  CHECK(found[2].price == Price::hardware);
  for (const Combination& combination : found) {
    const std::optional<Trial> again = try_job(patched(job, json::parse(combination.change)));
    REQUIRE(again);
    CHECK(again->verdict == Verdict::fits);
    CHECK(again->total == combination.trial.total);
  }
}

TEST_CASE("A job that shards everything is not told to shard less", "[advice]") {
  const json job = json::parse(R"({"model": {"preset": "llama-2-7b"}, "gpu": {"name": "rtx-4090"},
    "parallel": {"strategy": "deepspeed", "zero_stage": 3, "data": 4}})");
  const Result<Advice> advice = advise(job.dump());
  REQUIRE(advice);
  for (const TriedChange& tried : advice->changes) CHECK(tried.label.find("ZeRO-2") == std::string::npos);
  for (const Combination& combination : advice->combinations)
    for (const Combination::Part& part : combination.parts) CHECK(part.label.find("ZeRO-2") == std::string::npos);
}

TEST_CASE("Every row with remedies is among the advisor's, with words and a weight", "[advice]") {
  std::size_t rows = 0, listed = 0;
  for (const SectionWords* section : section_words())
    for (const Setting& row : section->rows) {
      rows += row.remedies.empty() ? 0 : 1;
      for (const Remedy& remedy : row.remedies) {
        CHECK(json::accept(remedy.value));
        CHECK(remedy.weight > 0);
        CHECK(std::string(remedy.label).size() > 2);
        CHECK(std::string(remedy.costs).size() > 2);
      }
    }
  for (const Section* section : sections_with_remedies()) listed += section->remedies.size();
  CHECK(rows == listed);
}

}  // namespace oometer
