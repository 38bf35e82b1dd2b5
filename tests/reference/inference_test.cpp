#include "families.h"

/// Real generate(), measured without a dispatch mode: to the byte where every token is run, and close to it where most
/// are skipped.
namespace oometer {
namespace {

constexpr PhaseName kPhases[] = {PhaseName::prefill, PhaseName::decode};

Run run_every_step(const Job& job) {
  const Behaviours behaviours = resolve_behaviours(job.runtime);
  Run result;
  result.simulation = simulate(job, behaviours, false);
  result.replay = replay(result.simulation.log, {});
  return result;
}

void check_inference(const ReferenceCase& c) {
  INFO(c.name);
  const Run r = run_every_step(c.job);
  const Log& log = r.simulation.log;
  const std::vector<std::int64_t> requested = requested_peaks(log);
  for (std::size_t i = 0; i < log.phases.size(); ++i) {
    const PhaseMark& mark = log.phases[i];
    if (mark.iteration == 0) continue;
    CAPTURE(mark.iteration, phase_name(mark.name));
    const nlohmann::json& truth =
        c.truth["iterations"][static_cast<unsigned>(mark.iteration - 1)]["phases"][phase_name(mark.name)];
    CHECK(requested[i] == truth["requested"]);
    CHECK(r.replay.phases[i].allocated == truth["allocated"]);
    CHECK(r.replay.phases[i].reserved == truth["reserved"]);
  }
}

const FamilyTests kInference("inference", Groups::as_the_job_says, check_inference,
                             "every phase of a generation is real PyTorch's to the byte");

TEST_CASE("A graph's forward in eval mode is real PyTorch's to the byte", "[reference][inference][graph]") {
  std::ifstream input(kReference / "graphs_inference.jsonl");
  std::size_t cases = 0;
  for (std::string text; std::getline(input, text); ++cases) {
    const nlohmann::json line = nlohmann::json::parse(text);
    nlohmann::json job = line["job"];
    job["version"] = 1;
    job["model"]["graph"] = line["graph"];
    const Result<Job> parsed = parse_job(job.dump());
    if (!parsed) FAIL(line["name"] << ": " << parsed.error().pointer << ": " << parsed.error().message);
    check_inference({line["name"], *parsed, line["truth"]});
  }
  CHECK(cases == 16);
}

TEST_CASE("An answer that skips tokens has the same peaks: allocated within 0.5 %, reserved within 2 %",
          "[reference][inference]") {
  std::size_t skipped = 0;
  for (const ReferenceCase& c : read_cases_of_families("inference", Groups::as_the_job_says)) {
    INFO(c.name);
    const Run r = run(c.job);
    skipped += r.simulation.generated.skipped;
    for (std::size_t turn = 1; turn <= c.truth["iterations"].size(); ++turn)
      for (const PhaseName name : kPhases) {
        const nlohmann::json& phases = c.truth["iterations"][turn - 1]["phases"];
        if (!phases.contains(phase_name(name))) continue;
        CAPTURE(turn, phase_name(name));
        const MemoryStats peak = phase_peak(r.simulation.log, r.replay, static_cast<int>(turn), name);
        const std::int64_t allocated = phases[phase_name(name)]["allocated"];
        const std::int64_t reserved = phases[phase_name(name)]["reserved"];
        CHECK(share(peak.allocated - allocated, allocated) <= 0.005);
        CHECK(share(peak.reserved - reserved, reserved) <= 0.02);
      }
  }
  CHECK(skipped >= 4);
}

}  // namespace
}  // namespace oometer
