#include <algorithm>
#include <catch2/generators/catch_generators.hpp>

#include "../jobs.h"

/// What ZeRO-3 makes of a step (distributed/zero_3.h).
namespace oometer {
namespace {

std::string zero3(std::int64_t world, const std::string& options = "", const std::string& more = "") {
  return R"(, "parallel": {"strategy": "deepspeed", "data": )" + std::to_string(world) + more +
         R"(, "ds_config": {"zero_optimization": {"stage": 3, "reduce_bucket_size": 4096)" +
         (options.empty() ? "" : ", " + options) + "}}}";
}

/// Nothing stays whole between modules.
const std::string kNonePersists = R"("stage3_param_persistence_threshold": 0)";

/// Elements of a rank's partitions: each parameter is cut on its own and padded.
std::int64_t partitions(std::int64_t world) {
  const auto part = [&](std::int64_t numel) { return (numel + world - 1) / world; };
  const std::int64_t block = 2 * part(64 * 64) + 2 * part(32 * 64) + 3 * part(176 * 64) + 2 * part(64);
  return 2 * part(512 * 64) + part(64) + 2 * block;
}

TEST_CASE("Between steps a rank has its partitions, their gradients, masters and moments", "[distributed]") {
  const std::int64_t world = GENERATE(2, 3, 8);
  const Log log = run_log(tiny_llama(kInBf16, zero3(world, kNonePersists)));
  for (const int iteration : {1, 2})
    CHECK(alive_at(log, Role::parameter, PhaseName::forward, iteration) == 2 * partitions(world));
  CHECK(alive_at(log, Role::gradient, PhaseName::forward, 2) == 2 * partitions(world) + 2 * 4096);
  // Masters from the beginning; moments, and a counter for each of two groups, from the first step on.
  CHECK(alive_at(log, Role::optimizer_state, PhaseName::forward, 1) == 4 * partitions(world));
  CHECK(alive_at(log, Role::optimizer_state, PhaseName::forward, 2) == 12 * partitions(world) + 2 * 4);
}

TEST_CASE("Small parameters stay whole from the first step on", "[distributed]") {
  const Log log = run_log(tiny_llama(kInBf16, zero3(2, R"("stage3_param_persistence_threshold": 64)")));
  CHECK(alive_at(log, Role::parameter, PhaseName::forward, 1) == 2 * partitions(2));
  CHECK(alive_at(log, Role::parameter, PhaseName::forward, 2) == 2 * partitions(2) + 2 * 5 * 64);
}

/// The most bytes of parameters that are alive at once in a phase.
std::int64_t most_parameters(const Log& log, PhaseName phase, int iteration) {
  std::int64_t alive = 0, most = 0;
  std::size_t mark = 0;
  PhaseMark current = log.phases.front();
  for (std::uint32_t i = 0; i < log.events.size(); ++i) {
    while (mark < log.phases.size() && log.phases[mark].first_event <= i) current = log.phases[mark++];
    const Event& event = log.events[i];
    if (event.kind != EventKind::alloc && event.kind != EventKind::free) continue;
    const StorageRecord& storage = log.storages[event.storage];
    if (storage.role != Role::parameter) continue;
    alive += event.kind == EventKind::alloc ? storage.bytes : -storage.bytes;
    if (current.name == phase && current.iteration == iteration) most = std::max(most, alive);
  }
  return most;
}

TEST_CASE("The first step gathers module by module, later ones as far ahead as they may", "[distributed]") {
  const std::int64_t own = 2 * partitions(2), embedding = 2 * 512 * 64;
  const auto log_of = [](const std::string& options) {
    return run_log(tiny_llama(kInBf16, zero3(2, kNonePersists + ", " + options)));
  };
  const Log near = log_of(R"("stage3_prefetch_bucket_size": 0, "stage3_max_reuse_distance": 0)");
  for (const int iteration : {1, 2}) CHECK(most_parameters(near, PhaseName::forward, iteration) == own + embedding);
  const Log far = log_of(R"("stage3_prefetch_bucket_size": 50000000)");
  CHECK(most_parameters(far, PhaseName::forward, 1) == own + embedding);
  // Everything at once: by default the whole model would be used again within the distance.
  CHECK(most_parameters(far, PhaseName::forward, 2) > 2 * own);
  const Log bounded = log_of(R"("stage3_max_live_parameters": 40000, "stage3_max_reuse_distance": 0)");
  CHECK(most_parameters(bounded, PhaseName::forward, 2) < most_parameters(far, PhaseName::forward, 2));
}

TEST_CASE("Liger's loss reads the head: in the first step when it comes to it, then all through the forward",
          "[distributed]") {
  const std::string adapters =
      GENERATE("", R"(, "lora": {"rank": 4, "target_modules": ["q_proj"]})",
               R"(, "ia3": {"target_modules": ["k_proj", "down_proj"], "feedforward_modules": ["down_proj"]})");
  const auto most = [&](const std::string& training, int iteration) {
    const std::string options = kNonePersists + R"(, "stage3_prefetch_bucket_size": 0, "stage3_max_reuse_distance": 0)";
    return most_parameters(run_log(tiny_llama(kInBf16 + adapters + training, zero3(2, options))), PhaseName::forward,
                           iteration);
  };
  const std::string liger = R"(, "liger": true)";
  CHECK(most(liger, 1) == most("", 1));
  CHECK(most(liger, 2) == most("", 2) + 2 * 512 * 64);
}

TEST_CASE("Sub-groups bound what the step needs beside the states", "[distributed]") {
  const auto peak = [](const std::string& options) {
    const Log log = run_log(tiny_llama(kInBf16, zero3(2, options)));
    std::int64_t largest = 0;
    for (const StorageRecord& storage : log.storages)
      if (storage.role == Role::gradient && storage.dtype == DType::float32) largest = std::max(largest, storage.bytes);
    return largest;
  };
  CHECK(peak(R"("sub_group_size": 10000)") < peak("") / 2);
}

TEST_CASE("Every rank of ZeRO-3 holds as much", "[distributed]") {
  const auto log_of = [](int rank) {
    return run_log(tiny_llama(kInBf16, zero3(3, "", R"(, "rank": )" + std::to_string(rank))));
  };
  const Log first = log_of(0), last = log_of(2);
  REQUIRE(first.storages.size() == last.storages.size());
  for (std::size_t i = 0; i < first.storages.size(); ++i) CHECK(first.storages[i].bytes == last.storages[i].bytes);
}

TEST_CASE("What is offloaded is on the host, and on the GPU while it is used", "[distributed]") {
  const std::string optimizer = kNonePersists + R"(, "offload_optimizer": {"device": "cpu"})",
                    both = optimizer + R"(, "offload_param": {"device": "cpu", "pin_memory": true})";
  const Simulation s = simulation_of(tiny_llama(kInBf16, zero3(2, optimizer)));
  CHECK(alive_at(s.log, Role::optimizer_state, PhaseName::forward, 2) == 0);
  CHECK(alive_at(s.log, Role::parameter, PhaseName::forward, 2) == 2 * partitions(2));
  CHECK(alive_at(s.log, Role::gradient, PhaseName::forward, 2) == 2 * 4096);  // the bucket
  CHECK(s.host[HostPart::weight_copies] == 2 * (partitions(2) - 5 * 64 / 2));
  CHECK(s.host.sum() - s.host[HostPart::weight_copies] == 18 * partitions(2));
  const Simulation all = simulation_of(tiny_llama(kInBf16, zero3(2, both)));
  CHECK(alive_at(all.log, Role::parameter, PhaseName::forward, 2) == 0);
  // The trained ones are in a pinned buffer of each group; their own, which are pinned too, stay in the cache.
  const std::int64_t in_buffers = pinned_size(2 * (partitions(2) - 5 * 64 / 2)) + pinned_size(2 * 5 * 64 / 2);
  CHECK(all.host[HostPart::parameters] == in_buffers);
  CHECK(all.host[HostPart::pinned_cache] >= 2 * partitions(2));
  CHECK(all.host.sum() - in_buffers - all.host[HostPart::pinned_cache] == 18 * partitions(2));
}

TEST_CASE("ZeRO-3 says what DeepSpeed would stop at", "[distributed]") {
  const std::string lora = R"("precision": "bf16", "lora": {"rank": 4, "target_modules": ["q_proj"], "also_train": )";
  const Simulation mixed = simulation_of(tiny_llama(lora + R"(["norm"]})", zero3(2)));
  REQUIRE(mixed.refusal);
  CHECK(mixed.refusal->message.find("autocast_adapter_dtype") != std::string::npos);
  CHECK_FALSE(simulation_of(tiny_llama(lora + "[]}", zero3(2))).refusal);
}

}  // namespace
}  // namespace oometer
