#include "cases.h"

/// LLaVA, LLaVA-NeXT, CLIP, Llama, SmolVLM and Idefics3 on one GPU, full size and tiny. Recorded under a dispatch mode,
/// which changes where gradients are added up: those numbers are compared with that behaviour on, `real` (without a
/// mode) with it off.
namespace oometer {
namespace {

const std::vector<ReferenceCase>& cases() {
  static const std::vector<ReferenceCase> all = read_cases("single_gpu.jsonl", Groups::one);
  return all;
}

Behaviours under_dispatch_mode(const Job& job) {
  Behaviours behaviours = resolve_behaviours(job.runtime);
  behaviours.dispatch_mode = true;
  return behaviours;
}

/// The worse of the two iterations.
std::int64_t worst(const nlohmann::json& iterations, const char* statistic) {
  std::int64_t bytes = 0;
  for (const nlohmann::json& iteration : iterations) bytes = std::max(bytes, iteration[statistic].get<std::int64_t>());
  return bytes;
}

void check_peaks(const MemoryStats& peak, const nlohmann::json& iterations, std::vector<double>& allocated,
                 std::vector<double>& reserved) {
  allocated.push_back(error_of(peak.allocated, worst(iterations, "allocated")));
  reserved.push_back(error_of(peak.reserved, worst(iterations, "reserved")));
  CAPTURE(peak.allocated, worst(iterations, "allocated"), peak.reserved, worst(iterations, "reserved"));
  CHECK(allocated.back() <= 0.005);
  CHECK(reserved.back() <= 0.02);
}

TEST_CASE("Peaks of one GPU are those recorded", "[reference]") {
  std::vector<double> allocated, reserved;
  for (const ReferenceCase& c : cases()) {
    INFO(c.name);
    const Run r = run(c.job, under_dispatch_mode(c.job));
    check_peaks(r.replay.peak, c.truth["iterations"], allocated, reserved);
  }
  CHECK(allocated.size() == 60);
  CHECK(median(allocated) <= 0.001);
  CHECK(median(reserved) <= 0.005);
}

TEST_CASE("Peaks of one GPU with expandable segments are those recorded", "[reference]") {
  std::vector<double> allocated, reserved;
  for (const ReferenceCase& c : cases()) {
    INFO(c.name);
    Behaviours behaviours = under_dispatch_mode(c.job);
    behaviours.expandable_segments = true;
    const Run r = run(c.job, behaviours);
    check_peaks(r.replay.peak, c.truth["expandable"], allocated, reserved);
  }
  CHECK(median(allocated) <= 0.001);
  CHECK(median(reserved) <= 0.005);
}

TEST_CASE("Without a dispatch mode every phase's peak is real PyTorch's to the byte", "[reference]") {
  for (const ReferenceCase& c : cases()) {
    INFO(c.name);
    const Run r = run(c.job);
    for (int iteration : {1, 2}) {
      const nlohmann::json& truth = c.truth["real"]["iterations"][static_cast<unsigned>(iteration - 1)];
      for (const PhaseName phase : kStepPhases) {
        CAPTURE(iteration, phase_name(phase));
        const MemoryStats peak = phase_peak(r.simulation.log, r.replay, iteration, phase);
        const nlohmann::json& expected = truth["phases"][phase_name(phase)];
        CHECK(requested_peak(r.simulation.log, iteration, phase) == expected["requested"]);
        CHECK(peak.allocated == expected["allocated"]);
        CHECK(peak.reserved == expected["reserved"]);
      }
    }
  }
}

/// What FakeTensor sees of a log: operators' results, but neither workspaces nor the product inside softmax's backward
/// (which eager attention makes large).
Log seen_by_fake_tensor(Log log) {
  const auto hidden = [&](const StorageRecord& storage) {
    return storage.role == Role::workspace ||
           (std::string_view(log.ops[log.events[storage.alloc_event].op]) == "softmax_backward" &&
            storage.free_event == storage.alloc_event + 1);
  };
  std::vector<bool> drop(log.events.size(), false);
  for (const StorageRecord& storage : log.storages) {
    if (!hidden(storage)) continue;
    drop[storage.alloc_event] = true;
    if (storage.free_event != kNever) drop[storage.free_event] = true;
  }
  std::vector<std::uint32_t> moved(log.events.size() + 1);
  std::vector<Event> kept;
  for (std::size_t i = 0; i < log.events.size(); ++i) {
    moved[i] = static_cast<std::uint32_t>(kept.size());
    if (!drop[i]) kept.push_back(log.events[i]);
  }
  moved.back() = static_cast<std::uint32_t>(kept.size());
  for (StorageRecord& storage : log.storages) {
    const bool gone = drop[storage.alloc_event];
    storage.alloc_event = moved[storage.alloc_event];
    if (storage.free_event != kNever) storage.free_event = moved[storage.free_event];
    if (gone) storage.bytes = 0;
  }
  for (PhaseMark& phase : log.phases) phase.first_event = moved[phase.first_event];
  log.events = std::move(kept);
  return log;
}

TEST_CASE("Every phase's peak is the recorded one's within 1 % of the whole", "[reference]") {
  for (const ReferenceCase& c : cases()) {
    INFO(c.name);
    const Log log = seen_by_fake_tensor(simulate(c.job, under_dispatch_mode(c.job)).log);
    const Replay seen = replay(log, {});
    for (int iteration : {1, 2}) {
      const nlohmann::json& truth = c.truth["phases"][static_cast<unsigned>(iteration - 1)];
      const std::int64_t whole = std::max({truth["forward"].get<std::int64_t>(), truth["backward"].get<std::int64_t>(),
                                           truth["optimizer"].get<std::int64_t>()});
      for (const PhaseName phase : kStepPhases) {
        const std::int64_t peak = requested_peak(log, iteration, phase);
        const std::int64_t expected = truth[phase_name(phase)];
        CAPTURE(iteration, phase_name(phase), peak, expected);
        CHECK(share(peak - expected, whole) <= 0.01);
      }
    }
  }
}

/// The oracle's categories by oometer's factors.
Factor factor_of(const std::string& category) {
  if (category == "params") return Factor::parameters;
  if (category == "grads") return Factor::gradients;
  if (category == "opt_state") return Factor::optimizer_states;
  if (category == "saved_activations" || category == "recomputed_saved") return Factor::activations;
  if (category == "buffers" || category == "inputs") return Factor::buffers_and_inputs;
  return Factor::temporaries;
}

TEST_CASE("Each factor at the peak is the recorded one's within 1 % of the peak", "[reference]") {
  for (const ReferenceCase& c : cases()) {
    INFO(c.name);
    const Log log = seen_by_fake_tensor(simulate(c.job, under_dispatch_mode(c.job)).log);
    const Replay seen = replay(log, {});
    const Report report = build_report(log, seen, seen, {});
    Factors expected{};
    std::int64_t highest_peak = -1;
    for (const nlohmann::json& breakdown : c.truth["breakdown"]) {
      Factors factors{};
      for (const auto& [category, bytes] : breakdown.items()) factors[factor_of(category)] += bytes.get<std::int64_t>();
      if (factors.sum() <= highest_peak) continue;
      highest_peak = factors.sum();
      expected = factors;
    }
    for (std::size_t i = 0; i + 1 < kFactors; ++i) {
      const Factor factor = static_cast<Factor>(i);
      CAPTURE(factor_name(factor), report.breakdown[factor], expected[factor]);
      CHECK(share(report.breakdown[factor] - expected[factor], report.peak.allocated) <= 0.01);
    }
  }
}

TEST_CASE("Parameter counts are those of the real models", "[reference]") {
  for (const ReferenceCase& c : cases()) {
    INFO(c.name);
    const Simulation simulation = simulate(c.job, resolve_behaviours(c.job.runtime));
    CHECK(simulation.parameters == c.truth["parameters"]);
    CHECK(simulation.trainable == c.truth["trainable"]);
  }
}

}  // namespace
}  // namespace oometer
