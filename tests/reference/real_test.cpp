#include "families.h"

/// Tiny models over the matrix of options, and as ranks of ZeRO, DDP and FSDP, measured in real PyTorch without a
/// dispatch mode: equal to the byte.
namespace oometer {
namespace {

/// A recorded phase's peak of "allocated", "reserved" or "requested": zero_grad belongs to the optimizer's.
std::int64_t recorded(const nlohmann::json& phases, PhaseName phase, const char* what) {
  const std::int64_t peak = phases[phase_name(phase)][what];
  if (phase != PhaseName::optimizer || !phases.contains("zero_grad")) return peak;
  return std::max(peak, phases["zero_grad"][what].get<std::int64_t>());
}

/// Bytes in blocks that are alive when a phase ends.
std::int64_t allocated_after(const Run& r, std::size_t phase) {
  const Log& log = r.simulation.log;
  const auto end =
      phase + 1 < log.phases.size() ? log.phases[phase + 1].first_event : static_cast<std::uint32_t>(log.events.size());
  std::int64_t bytes = 0;
  for (std::size_t i = 0; i < log.storages.size(); ++i)
    if (log.storages[i].alloc_event < end && log.storages[i].free_event >= end) bytes += r.replay.block_bytes[i];
  return bytes;
}

/// Where the first iteration begins in the log.
std::size_t first_step(const Log& log) {
  for (const PhaseMark& mark : log.phases)
    if (mark.iteration > 0) return mark.first_event;
  return log.events.size();
}

/// `blocks`: also of the allocator's blocks, to the byte; else those within 1 %.
void check_case(const ReferenceCase& c, bool blocks = true) {
  INFO(c.name);
  const Run r = run(c.job);
  const Log& log = r.simulation.log;
  const std::vector<std::int64_t> requested = requested_peaks(log);
  for (const int iteration : {1, 2})
    for (const PhaseName name : kStepPhases) {
      CAPTURE(iteration, phase_name(name));
      // Micro-steps repeat a phase.
      std::int64_t most = 0;
      std::size_t last_phase = 0;
      for (std::size_t i = 0; i < log.phases.size(); ++i) {
        if (log.phases[i].iteration != iteration || log.phases[i].name != name) continue;
        most = std::max(most, requested[i]);
        last_phase = i;
      }
      const nlohmann::json& phases = c.truth["iterations"][static_cast<unsigned>(iteration - 1)]["phases"];
      const MemoryStats peak = phase_peak(log, r.replay, iteration, name);
      // PyTorch counts what another stream uses (record_stream) as requested until its events have passed, which the
      // allocator sees at its next call: what the backward of ZeRO-3, or of an offloaded optimizer, let go last is
      // still in the optimizer's figure.
      const DeepSpeedConfig& zero = c.job.parallel.deepspeed;
      const bool lingers = c.job.parallel.strategy == Strategy::deepspeed && name == PhaseName::optimizer &&
                           (zero.zero_stage == 3 || zero.offload_optimizer != OffloadDevice::none);
      if (lingers)
        CHECK(most <= recorded(phases, name, "requested"));
      else
        CHECK(most == recorded(phases, name, "requested"));
      if (!blocks) {
        const std::int64_t theirs = recorded(phases, name, "allocated");
        CHECK(std::abs(peak.allocated - theirs) <= theirs / 100);
        continue;
      }
      CHECK(peak.allocated == recorded(phases, name, "allocated"));
      CHECK(peak.reserved == recorded(phases, name, "reserved"));
      const char* last = name == PhaseName::optimizer && phases.contains("zero_grad") ? "zero_grad" : phase_name(name);
      CHECK(allocated_after(r, last_phase) == phases[last]["end_allocated"]);
    }
  if (!c.truth.contains("allocations")) return;
  std::int64_t allocations = 0;
  for (std::size_t i = first_step(log); i < log.events.size(); ++i)
    allocations += log.events[i].kind == EventKind::alloc ? 1 : 0;
  CHECK(allocations == c.truth["allocations"]);
}

/// A rank's recording made the groups by names alone, so the tower's norms ("layer_norm1") had weight decay. HF Trainer
/// goes by the type nn.LayerNorm too, as oometer does.
bool groups_made_by_name(const ReferenceCase& c) { return c.name == "zero2_llava_full_w2_ckpt"; }

const FamilyTests kTraining(
    "training", Groups::one, [](const ReferenceCase& c) { check_case(c); },
    "every phase of training is real PyTorch's to the byte");
const FamilyTests kVersions(
    "versions", Groups::one, [](const ReferenceCase& c) { check_case(c); },
    "every phase is older transformers' and the original LLaVA code's to the byte");
const FamilyTests kRanks(
    "ranks", Groups::as_the_job_says,
    [](const ReferenceCase& c) {
      if (!groups_made_by_name(c)) check_case(c);
    },
    "every phase of a rank is the real framework's to the byte");

TEST_CASE("Every file of a family's cases is read by a test, and none is missing", "[reference]") {
  std::size_t cases = 0;
  for (const auto& folder : std::filesystem::directory_iterator(kReference)) {
    if (!folder.is_directory() || folder.path().filename() == "trainer") continue;  // loops: of any family
    CAPTURE(folder.path());
    CHECK(is_directory(kReference / "../../core/models" / folder.path().filename()));
    for (const auto& file : std::filesystem::directory_iterator(folder)) {
      const std::string kind = file.path().stem().string();
      CAPTURE(kind);
      CHECK((kind == "training" || kind == "versions" || kind == "ranks" || kind == "inference" || kind == "tokens" ||
             kind == "videos" || kind == "audios"));
      std::ifstream input(file.path());
      for (std::string line; std::getline(input, line);) ++cases;
    }
  }
  CHECK(cases >= 1392);
}

/// How many cases a file of graphs has: each is checked.
std::size_t check_graphs(const char* file) {
  std::ifstream input(kReference / file);
  std::size_t cases = 0;
  for (std::string text; std::getline(input, text);) {
    const nlohmann::json line = nlohmann::json::parse(text);
    for (const nlohmann::json& its : line["cases"]) {
      nlohmann::json job = its["job"];
      job["version"] = 1;
      job["model"]["graph"] = line["graph"];
      const std::string name = line["name"].get<std::string>() + " " + its["name"].get<std::string>();
      const Result<Job> parsed = parse_job(job.dump());
      ++cases;
      if (!parsed) {
        FAIL_CHECK(name << ": " << parsed.error().pointer << ": " << parsed.error().message);
        continue;
      }
      check_case({name, *parsed, its["truth"]}, line.value("blocks", true));
    }
  }
  return cases;
}

TEST_CASE("Every phase of a graph's training is real PyTorch's to the byte", "[reference][graph]") {
  CHECK(check_graphs("graphs.jsonl") == 206);
}

TEST_CASE("Every phase of an exported class of transformers is real PyTorch's to the byte", "[reference][graph]") {
  CHECK(check_graphs("graphs_transformers.jsonl") == 28);
}

/// A family's own job and its graph, written by export_graph.py --hf.
TEST_CASE("An exported Llama and LLaVA take what their families say, to the byte", "[reference][graph][llama][llava]") {
  std::ifstream input(kReference / "graphs_transformers.jsonl");
  std::size_t compared = 0;
  for (std::string text; std::getline(input, text);) {
    const nlohmann::json line = nlohmann::json::parse(text);
    const std::string name = line["name"];
    if (name != "llama" && name != "llava") continue;
    CAPTURE(name);
    nlohmann::json own = line["cases"][0]["job"], graph = own;
    own["version"] = graph["version"] = 1;
    graph["model"]["graph"] = line["graph"];
    own["model"]["config"] = line["config"];
    own["data"]["sequence_length"] = 48;
    own["training"]["stage"] = "full";
    const Result<Job> job_of_graph = parse_job(graph.dump()), job_of_family = parse_job(own.dump());
    REQUIRE(job_of_graph);
    if (!job_of_family) FAIL(job_of_family.error().pointer << ": " << job_of_family.error().message);
    const Run a = run(*job_of_graph), b = run(*job_of_family);
    for (const int iteration : {1, 2})
      for (const PhaseName phase : kStepPhases) {
        CAPTURE(iteration, phase_name(phase));
        const MemoryStats ours = phase_peak(a.simulation.log, a.replay, iteration, phase),
                          theirs = phase_peak(b.simulation.log, b.replay, iteration, phase);
        CHECK(ours.allocated == theirs.allocated);
        CHECK(ours.reserved == theirs.reserved);
      }
    ++compared;
  }
  CHECK(compared == 2);
}

}  // namespace
}  // namespace oometer
