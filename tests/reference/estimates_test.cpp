#include "../unit/jobs.h"
#include "cases.h"
#include "job/notes.h"

/// DeepSpeed's own estimators of model states (estimate_zero2_model_states_mem_needs,
/// estimate_zero3_model_states_mem_needs; 0.19.8), as those functions answered, against what a step holds.
namespace oometer {
namespace {

constexpr std::int64_t kTinyLlama = 158016;  ///< parameters of tiny_llama(), which each world here divides

std::string deepspeed(std::int64_t stage, std::int64_t gpus, const std::string& offload) {
  std::string zero = R"({"stage": )" + std::to_string(stage) + R"(, "stage3_param_persistence_threshold": 0)";
  if (!offload.empty()) zero += R"(, "offload_optimizer": {"device": "cpu"})";
  if (offload == "both") zero += R"(, "offload_param": {"device": "cpu"})";
  return R"(, "parallel": {"strategy": "deepspeed", "data": )" + std::to_string(gpus) +
         R"(, "ds_config": {"zero_optimization": )" + zero + "}}}";
}

TEST_CASE("DeepSpeed's estimators are repeated to the byte", "[reference]") {
  std::ifstream input(std::string(OOMETER_SOURCE_DIR) + "/tests/reference/deepspeed_estimates.jsonl");
  int compared = 0;
  for (std::string line; std::getline(input, line); ++compared) {
    CAPTURE(line);
    const nlohmann::json row = nlohmann::json::parse(line);
    DeepSpeedConfig config;
    config.zero_stage = row["stage"];
    const std::string offload = row.value("offload", "");
    if (!offload.empty()) config.offload_optimizer = OffloadDevice::cpu;
    if (offload == "both") config.offload_param = OffloadDevice::cpu;
    CHECK(deepspeed_estimate(config, row["parameters"], row.value("largest_layer", 0), row["gpus"]) ==
          row["gpu_bytes"]);
  }
  CHECK(compared == 45);
}

TEST_CASE("A report under ZeRO has DeepSpeed's estimate beside what is there", "[reference]") {
  const auto note = [](const std::string& training, std::int64_t stage, const std::string& offload) {
    const Result<Estimate> estimate = oometer::estimate(tiny_llama(training, deepspeed(stage, 2, offload)));
    REQUIRE(estimate);
    REQUIRE_FALSE(estimate->input.notes.empty());
    return estimate->input.notes.back();
  };
  const auto has = [](const std::string& text, const char* part) { return text.find(part) != std::string::npos; };
  const std::string second = note(R"("precision": "bf16")", 2, "");
  CHECK(has(second, "estimate_zero2_model_states_mem_needs gives 0.0 GiB"));
  CHECK(has(second, "16-bit and 32-bit gradients"));
  CHECK(has(second, "reduce buckets of 0.9 GiB"));
  CHECK_FALSE(has(second, "frozen"));
  CHECK(has(note(R"("precision": "bf16")", 2, "optimizer"), "a gradient buffer the size of"));
  CHECK(has(note(R"("precision": "bf16")", 3, ""), "and prefetched layers"));
  CHECK(has(note(R"("precision": "bf16", "stage": "custom", "freeze": ["lm_head"])", 3, ""), "for the frozen ones"));
}

TEST_CASE("Model states are DeepSpeed's own estimate, but for what it gets wrong", "[reference]") {
  std::ifstream input(std::string(OOMETER_SOURCE_DIR) + "/tests/reference/deepspeed_estimates.jsonl");
  int compared = 0;
  for (std::string line; std::getline(input, line);) {
    const nlohmann::json row = nlohmann::json::parse(line);
    if (row["parameters"] != kTinyLlama) continue;
    CAPTURE(line);
    ++compared;
    const std::int64_t n = kTinyLlama, gpus = row["gpus"], estimate = row["gpu_bytes"];
    const std::string offload = row.value("offload", "");
    const Simulation s = simulation_of(tiny_llama(R"("precision": "bf16")", deepspeed(row["stage"], gpus, offload)));
    CHECK(s.parameters == n);
    const std::int64_t parameters = alive_at(s.log, Role::parameter, PhaseName::forward, 2);
    // The step counters of two groups are not in any estimate.
    const std::int64_t counters = offload.empty() ? 2 * 4 : 0;
    const std::int64_t states = alive_at(s.log, Role::optimizer_state, PhaseName::forward, 2) - counters;
    if (row["stage"] == 2 && !offload.empty()) {
      // It leaves out a buffer as large as the largest gradient, here and there, and the new 16-bit partition on its
      // way back.
      const std::int64_t buffer = 2 * row["largest_layer"].get<std::int64_t>();
      CHECK(parameters + states == estimate);
      CHECK(alive_at(s.log, Role::gradient, PhaseName::forward, 2) == buffer);
      // From more than four GPUs on it takes every process's fp32 copy of the whole model for more than its states.
      if (gpus <= 4) CHECK(s.host.sum() * gpus == row["host_bytes"].get<std::int64_t>() + 2 * n + gpus * buffer);
      continue;
    }
    if (row["stage"] == 2) {
      // 2 of 16-bit weights; of the 18 of a partition, 12 stay, 2 and 4 are gradients, which live in backward and step.
      CHECK(parameters + states == estimate - 6 * n / gpus);
      continue;
    }
    // One layer's weights and gradients, gathered, are in the estimate.
    const std::int64_t layer = 4 * row["largest_layer"].get<std::int64_t>();
    if (offload.empty()) {
      // Of 18, 4 are the step's gradients. It leaves out the 2 of the 16-bit partitions, which stay.
      CHECK(parameters + states == estimate - layer - 4 * n / gpus);
      CHECK(alive_at(s.log, Role::gradient, PhaseName::forward, 2) == 2 * n / gpus + 2 * 500'000'000LL);
    } else {
      CHECK(parameters + states == estimate - layer);
      // Of all GPUs of the node; the 16-bit gradient partitions are left out here too.
      // So are what casts the masters, what rounding adds to the parameters' pinned buffers, what allocators keep.
      const std::int64_t rest = s.host.sum() - s.host[HostPart::weight_copies] - s.host[HostPart::parameters] -
                                s.host[HostPart::pinned_cache];
      CHECK(rest * gpus + (offload == "both" ? 2 * n : 0) == row["host_bytes"].get<std::int64_t>() + 2 * n);
    }
  }
  CHECK(compared == 15);
}

}  // namespace
}  // namespace oometer
