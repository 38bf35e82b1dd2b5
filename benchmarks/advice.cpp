// Holds what the advisor calls cheapest against every cheaper selection of changes, for 50 jobs.
//   oometer-advice-bench [first [last]]
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "advice/changes.h"
#include "advice/combination.h"
#include "advice/grid.h"
#include "advice/trial.h"
#include "job/parse.h"

namespace {

using namespace oometer;
using nlohmann::json;

/// Ten models, each in five settings that leave its GPU too small.
std::vector<json> jobs() {
  const char* models[] = {"llava-1.5-7b", "llava-1.5-13b", "llama-3-8b", "qwen3-8b",       "qwen2.5-7b",
                          "qwen2-vl-2b",  "smolvlm-2.2b",  "llama-2-7b", "vicuna-7b-v1.5", "qwen2.5-vl-3b"};
  const char* settings[] = {
      R"({"gpu": {"name": "rtx-4090"}})",
      R"({"gpu": {"name": "l4"}, "training": {"lora": {"target_modules": "all-linear"}, "attention": "eager"}})",
      R"({"gpu": {"name": "a10g"}, "data": {"micro_batch_size": 8},
          "parallel": {"strategy": "ddp", "data": 4, "ddp": {"find_unused_parameters": true}}})",
      R"({"gpu": {"name": "a100-40gb"}, "parallel": {"strategy": "deepspeed", "zero_stage": 2, "data": 4},
          "data": {"micro_batch_size": 4}})",
      R"({"gpu": {"name": "rtx-3090"}, "parallel": {"strategy": "deepspeed", "zero_stage": 3, "data": 2},
          "training": {"activation_checkpointing": "non-reentrant"}, "data": {"micro_batch_size": 2}})"};
  std::vector<json> all;
  for (const char* setting : settings)
    for (const char* model : models) {
      all.push_back(json::parse(setting));
      all.back()["model"]["preset"] = model;
    }
  return all;
}

const char* const kNames[] = {"same", "training", "hardware"};
const Tier kTiers[] = {
    {{Price::nothing, Price::time}, {}},
    {{Price::nothing, Price::time, Price::numerics, Price::training}, {Price::numerics, Price::training}},
    {{Price::nothing, Price::time, Price::hardware}, {Price::hardware}}};

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

int main(int argc, char** argv) {  // NOLINT(bugprone-exception-escape): it may end so
  const std::vector<json> all = jobs();
  const std::size_t first = argc > 1 ? std::strtoul(argv[1], nullptr, 10) : 0;
  const std::size_t last = argc > 2 ? std::strtoul(argv[2], nullptr, 10) : all.size();
  int wrong = 0;
  for (std::size_t i = first; i < last && i < all.size(); ++i) {
    const Result<Job> job = parse_job(all[i].dump());
    const std::optional<Trial> now = try_job(all[i]);
    std::printf("%2zu  %s  %s\n", i, all[i].dump().c_str(), job && now ? now->fits ? "fits" : "" : "refused");
    std::fflush(stdout);
    if (!job || !now || now->fits) continue;
    const std::vector<Alternatives> choices = possible_changes(*job, all[i]);
    for (std::size_t tier = 0; tier < std::size(kTiers); ++tier) {
      Selections selections(all[i], choices);
      auto start = std::chrono::steady_clock::now();
      const std::optional<Selection> found = cheapest_selection(selections, kTiers[tier]);
      const double search = seconds_since(start);
      const std::size_t runs = selections.runs();
      start = std::chrono::steady_clock::now();
      const bool tight = found && selections.run(*found)->verdict != Verdict::fits;
      const std::optional<Selection> cheaper = cheapest_of_all(
          selections, kTiers[tier], tight, found ? std::optional(selections.cost(*found)) : std::nullopt);
      std::string verdict = found ? "cheapest" : "none, as in the whole grid";
      if (cheaper)
        verdict = "WRONG: " + selections.combination(*cheaper).change + ", not " +
                  (found ? selections.combination(*found).change : "none");
      wrong += cheaper ? 1 : 0;
      std::printf("    %-9s %4zu runs, %.2f s; grid %6zu runs, %.1f s: %s\n", kNames[tier], runs, search,
                  selections.runs() - runs, seconds_since(start), verdict.c_str());
      std::fflush(stdout);
    }
  }
  return wrong == 0 ? 0 : 1;
}
