#include <algorithm>
#include <catch2/generators/catch_generators.hpp>
#include <map>

#include "../jobs.h"

/// What fully_shard makes of a step (distributed/fsdp2.h).
namespace oometer {
namespace {

std::string fsdp2(std::int64_t world, const std::string& options = "", const std::string& more = "") {
  return R"(, "parallel": {"strategy": "fsdp2", "data": )" + std::to_string(world) + more + R"(, "fsdp": {)" + options +
         "}}";
}

/// Rows of each parameter's first dimension, on the rank that has most.
std::int64_t shard_elements(std::int64_t world) {
  const auto part = [&](std::int64_t rows, std::int64_t columns) { return (rows + world - 1) / world * columns; };
  const std::int64_t block = 2 * part(64, 64) + 2 * part(32, 64) + 2 * part(176, 64) + part(64, 176) + 2 * part(64, 1);
  return 2 * part(512, 64) + part(64, 1) + 2 * block;
}

TEST_CASE("Between steps a rank has its shards and their moments, and nothing else of the model", "[distributed]") {
  const std::int64_t world = GENERATE(1, 2, 3, 8);
  const Log log = run_log(tiny_llama(kInBf16, fsdp2(world)));
  CHECK(alive_at(log, Role::parameter, PhaseName::forward, 1) == 2 * shard_elements(world));
  CHECK(alive_at(log, Role::parameter, PhaseName::forward, 2) == 2 * shard_elements(world));
  CHECK(alive_at(log, Role::gradient, PhaseName::forward, 2) == 0);
  // Reduced gradients are in flat buffers of the same size.
  CHECK(alive_at(log, Role::gradient, PhaseName::optimizer, 2) == 2 * shard_elements(world));
}

TEST_CASE("Mixed precision shards floats, gathers halves, reduces floats", "[distributed]") {
  const Log log = run_log(tiny_llama(kInFp32, fsdp2(2, R"("mp": true)")));
  CHECK(alive_at(log, Role::parameter, PhaseName::forward, 2) == 4 * shard_elements(2));
  CHECK(alive_at(log, Role::gradient, PhaseName::optimizer, 1) == 4 * shard_elements(2));
  for (const StorageRecord& storage : log.storages)
    if (storage.role == Role::parameter && storage.alloc_event > log.phases[1].first_event)
      CHECK(storage.dtype == DType::bfloat16);
}

TEST_CASE("Parameters that are not sharded again stay until backward", "[distributed]") {
  const auto at_backward = [](const std::string& options) {
    return alive_at(run_log(tiny_llama(kInBf16, fsdp2(2, options))), Role::parameter, PhaseName::backward, 2);
  };
  CHECK(at_backward("") == 2 * shard_elements(2));
  CHECK(at_backward(R"("reshard_after_forward": false)") == 2 * shard_elements(2) + 2 * 2 * shard_elements(2));
}

TEST_CASE("Offloaded, the GPU has nothing of the model between uses, and the host's share is said", "[distributed]") {
  const std::string precision = GENERATE(kInBf16, kInFp32);
  const Simulation s = simulation_of(tiny_llama(precision, fsdp2(2, R"("cpu_offload": true)")));
  for (const Role role : {Role::parameter, Role::gradient, Role::optimizer_state})
    for (const PhaseName phase : {PhaseName::forward, PhaseName::optimizer})
      CHECK(alive_at(s.log, role, phase, 2) == 0);
  const std::int64_t shards = (precision == kInBf16 ? 2 : 4) * shard_elements(2);
  CHECK(s.host[HostPart::optimizer_states] == 2 * shards);
  // Pinned, each rounded up to a power of two.
  CHECK(s.host[HostPart::parameters] >= shards);
  CHECK(s.host[HostPart::parameters] < 2 * shards);
  CHECK(s.host[HostPart::gradients] == s.host[HostPart::parameters]);
}

TEST_CASE("Qwen2's blocks are groups as Llama's are", "[distributed]") {
  std::string qwen2 = tiny_llama(kInBf16, fsdp2(2));
  qwen2.replace(qwen2.find("\"llama\""), 7, "\"qwen2\"");
  const Log log = run_log(qwen2);
  // Each is let go before the next one runs: never is the whole model gathered.
  std::int64_t most = 0, alive = 0;
  for (const Event& event : log.events) {
    const StorageRecord& storage = log.storages[event.storage];
    if (storage.role != Role::parameter || storage.alloc_event < log.phases[1].first_event) continue;
    if (event.kind == EventKind::alloc) most = std::max(most, alive += storage.bytes);
    if (event.kind == EventKind::free) alive -= storage.bytes;
  }
  const Log whole = run_log([&] {
    std::string text = qwen2;
    return text.replace(text.find("\"fsdp\": {"), 9, R"("fsdp": {"wrap": [])");
  }());
  CHECK(alive == 0);
  CHECK(most < 2 * 2 * shard_elements(2) * 2);
  CHECK(whole.storages.size() < log.storages.size());
}

TEST_CASE("The last rank of a number that does not divide has fewer rows and as much memory", "[distributed]") {
  const Log first = run_log(tiny_llama(kInBf16, fsdp2(3, "", R"(, "rank": 0)")));
  const Log last = run_log(tiny_llama(kInBf16, fsdp2(3, "", R"(, "rank": 2)")));
  CHECK(alive_at(last, Role::parameter, PhaseName::forward, 2) ==
        alive_at(first, Role::parameter, PhaseName::forward, 2));
  CHECK(alive_at(last, Role::optimizer_state, PhaseName::forward, 2) <
        alive_at(first, Role::optimizer_state, PhaseName::forward, 2));
}

TEST_CASE("Without synchronization whole gradients wait, in the dtype that they will be reduced in", "[distributed]") {
  const Log log = run_log(tiny_llama(kInFp32 + R"(, "gradient_accumulation_steps": 2)", fsdp2(8, R"("mp": true)")));
  const std::size_t second = 3;  // init, forward, backward, forward
  REQUIRE(log.phases[second].name == PhaseName::forward);
  std::int64_t bytes = 0;
  for (const StorageRecord& storage : log.storages)
    if (storage.role == Role::gradient && storage.alloc_event < log.phases[second].first_event &&
        storage.free_event >= log.phases[second].first_event) {
      CHECK(storage.dtype == DType::float32);
      bytes += storage.bytes;
    }
  CHECK(bytes == 4 * shard_elements(1));
}

TEST_CASE("Adapters of another dtype are gathered with their block", "[distributed]") {
  const std::string lora = R"(, "lora": {"rank": 4, "target_modules": ["q_proj"]})";
  const Log log = run_log(tiny_llama(kInBf16 + lora, fsdp2(2)));
  std::size_t as_bytes = 0;
  for (const StorageRecord& storage : log.storages)
    as_bytes += storage.role == Role::parameter && storage.dtype == DType::uint8;
  CHECK(as_bytes == 2 * 2 * 2);  // blocks, forward and backward, iterations
}

TEST_CASE("Every gathered block is let go, under checkpointing too, and every free has its allocation",
          "[distributed]") {
  const std::string checkpointing =
      GENERATE("", R"(, "activation_checkpointing": "non-reentrant")", R"(, "activation_checkpointing": "reentrant")");
  const std::string options = GENERATE("", R"("reshard_after_forward": false)", R"("wrap": ["CLIPEncoderLayer"])");
  const std::string stage = GENERATE(R"(, "stage": "finetune")", R"(, "stage": "full")", R"(, "stage": "pretrain")");
  const Log log = run_log(tiny_llava(kInBf16 + checkpointing + stage, fsdp2(2, options)));
  check_frees(log);
  const std::int64_t sharded = alive_at(log, Role::parameter, PhaseName::forward, 1);
  CHECK(alive_at(log, Role::parameter, PhaseName::forward, 2) == sharded);
  CHECK(alive_at(log, Role::parameter, PhaseName::optimizer, 2) == sharded);
}

TEST_CASE("What trains in a group has one dtype", "[distributed]") {
  const auto lora = [](const std::string& more) {
    return kInBf16 + R"(, "lora": {"target_modules": ["q_proj"], "also_train": ["input_layernorm"])" + more + "}";
  };
  const Result<Estimate> stopped = estimate(tiny_llama(lora(""), fsdp2(2)));
  REQUIRE_FALSE(stopped);
  CHECK(stopped.error().message.find("two dtypes") != std::string::npos);
  CHECK(estimate(tiny_llama(lora(R"(, "autocast_adapter_dtype": false)"), fsdp2(2))));
}

}  // namespace
}  // namespace oometer
