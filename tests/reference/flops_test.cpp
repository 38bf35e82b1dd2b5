#include <map>

#include "families.h"
#include "report/work.h"

/// What torch.utils.flop_counter.FlopCounterMode counted in iteration 2 of the cases, or in their generation, by
/// operator (tools/flops.py): equal.
namespace oometer {
namespace {

using Flops = std::map<std::string, std::int64_t>;

Flops executed(const Log& log, int first_iteration, int last_iteration) {
  Flops flops;
  for (int iteration = first_iteration; iteration <= last_iteration; ++iteration) {
    const WorkTotals totals = work_of(log, iteration);
    for (OpId op = 0; op < log.ops.size(); ++op)
      if (totals.by_op[op].executed > 0) flops[flop_counter_name(log, op)] += totals.by_op[op].executed;
  }
  return flops;
}

void check_training(const ReferenceCase& c) {
  if (!c.truth.contains("flops")) return;
  INFO(c.name);
  const Simulation simulation = simulate(c.job, resolve_behaviours(c.job.runtime));
  CHECK(executed(simulation.log, 2, 2) == c.truth["flops"].get<Flops>());
}

/// Every token's, of all turns.
void check_generation(const ReferenceCase& c) {
  if (!c.truth.contains("flops")) return;
  INFO(c.name);
  const Simulation simulation = simulate(c.job, resolve_behaviours(c.job.runtime), false);
  const int turns = static_cast<int>(c.job.inference.turns);
  CHECK(executed(simulation.log, 1, turns) == c.truth["flops"].get<Flops>());
}

const FamilyTests kTrainingFlops("training", Groups::as_the_job_says, check_training,
                                 "training's FLOPs are those that PyTorch counts");
const FamilyTests kInferenceFlops("inference", Groups::as_the_job_says, check_generation,
                                  "a generation's FLOPs are those that PyTorch counts");

TEST_CASE("FLOPs of full-size models are those that PyTorch counts", "[reference]") {
  int counted = 0;
  for (const ReferenceCase& c : read_cases("single_gpu.jsonl", Groups::one)) {
    check_training(c);
    counted += c.truth.contains("flops") ? 1 : 0;
  }
  CHECK(counted > 50);
}

TEST_CASE("FLOPs of a graph are those that PyTorch counts of its module", "[reference][graph]") {
  const auto check = [](nlohmann::json job, const nlohmann::json& line, const nlohmann::json& truth) {
    job["version"] = 1;
    job["model"]["graph"] = line["graph"];
    const Result<Job> parsed = parse_job(job.dump());
    REQUIRE(parsed);
    const ReferenceCase c{line["name"], *parsed, truth};
    parsed->task == Task::train ? check_training(c) : check_generation(c);
  };
  for (const char* file : {"graphs.jsonl", "graphs_inference.jsonl", "graphs_transformers.jsonl"}) {
    std::ifstream input(kReference / file);
    for (std::string text; std::getline(input, text);) {
      const nlohmann::json line = nlohmann::json::parse(text);
      const nlohmann::json& its = line.contains("cases") ? line["cases"][0] : line;
      check(its["job"], line, its["truth"]);
    }
  }
}

}  // namespace
}  // namespace oometer
