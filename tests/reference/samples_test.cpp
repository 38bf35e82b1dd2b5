#include "cases.h"

/// Real PyTorch's steps with samples of different lengths, padded and packed: a loop by hand (tools/trainer.py).
namespace oometer {
namespace {

/// The highest of each optimizer step.
std::vector<MemoryStats> steps_of(const Log& log, const Replay& replay) {
  std::vector<MemoryStats> steps;
  for (std::size_t i = 0; i < log.phases.size(); ++i) {
    const auto iteration = static_cast<std::size_t>(log.phases[i].iteration);
    if (iteration == 0) continue;
    if (steps.size() < iteration) steps.emplace_back();
    steps.back() = highest(steps.back(), replay.phases[i]);
  }
  return steps;
}

TEST_CASE("Steps with samples of different lengths take what real PyTorch's take", "[reference]") {
  std::size_t compared = 0;
  for (const ReferenceCase& c : read_cases("trainer/samples.jsonl", Groups::as_the_job_says)) {
    INFO(c.name);
    const Run r = run(c.job);
    REQUIRE_FALSE(r.simulation.refusal);
    const std::vector<MemoryStats> steps = steps_of(r.simulation.log, r.replay);
    REQUIRE(steps.size() == c.truth["steps"].size());
    for (std::size_t i = 0; i < steps.size(); ++i) {
      CAPTURE(i);
      CHECK(steps[i].allocated == c.truth["steps"][i]["allocated"]);
      CHECK(steps[i].reserved == c.truth["steps"][i]["reserved"]);
    }
    ++compared;
  }
  CHECK(compared > 40);
}

}  // namespace
}  // namespace oometer
