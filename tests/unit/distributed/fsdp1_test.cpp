#include <catch2/generators/catch_generators.hpp>

#include "../jobs.h"

/// What FullyShardedDataParallel makes of a step (distributed/fsdp1.h).
namespace oometer {
namespace {

std::string fsdp1(std::int64_t world, const std::string& options = "", const std::string& more = "") {
  return R"(, "parallel": {"strategy": "fsdp1", "data": )" + std::to_string(world) + more + R"(, "fsdp": {)" + options +
         "}}";
}

constexpr std::int64_t kBlock = 2 * 64 * 64 + 2 * 32 * 64 + 3 * 176 * 64 + 2 * 64, kRest = 2 * 512 * 64 + 64;

/// Elements of a rank's parts: each unit is padded to the number of ranks.
std::int64_t flat_elements(std::int64_t world) {
  const auto part = [&](std::int64_t numel) { return (numel + world - 1) / world; };
  return 2 * part(kBlock) + part(kRest);
}

TEST_CASE("Between steps a rank has its part of each flat parameter", "[distributed]") {
  const std::int64_t world = GENERATE(1, 2, 3, 8);
  const Log log = run_log(tiny_llama(kInBf16, fsdp1(world)));
  CHECK(alive_at(log, Role::parameter, PhaseName::forward, 1) == 2 * flat_elements(world));
  CHECK(alive_at(log, Role::parameter, PhaseName::forward, 2) == 2 * flat_elements(world));
  CHECK(alive_at(log, Role::gradient, PhaseName::optimizer, 2) == 2 * flat_elements(world));
}

TEST_CASE("The model's own unit is gathered from forward to backward, blocks too where only gradients are sharded",
          "[distributed]") {
  const auto gathered = [](const std::string& options) {
    return alive_at(run_log(tiny_llama(kInBf16, fsdp1(2, options))), Role::parameter, PhaseName::backward, 2) -
           2 * flat_elements(2);
  };
  CHECK(gathered("") == 2 * kRest);
  CHECK(gathered(R"("sharding": "SHARD_GRAD_OP")") == 2 * (kRest + 2 * kBlock));
  CHECK(gathered(R"("sharding": "NO_SHARD")") == 2 * flat_elements(1) - 2 * flat_elements(2));
}

TEST_CASE("Under no_sync a rank has whole gradients", "[distributed]") {
  const Log log = run_log(tiny_llama(kInBf16 + R"(, "gradient_accumulation_steps": 2)", fsdp1(8)));
  std::int64_t between = 0;
  for (std::size_t i = 1; i < log.phases.size(); ++i) {
    if (log.phases[i].name != PhaseName::forward || log.phases[i - 1].name != PhaseName::backward) continue;
    for (const StorageRecord& storage : log.storages)
      if (storage.role == Role::gradient && storage.alloc_event < log.phases[i].first_event &&
          storage.free_event >= log.phases[i].first_event)
        between += storage.bytes;
    break;
  }
  CHECK(between == 2 * (2 * kBlock + kRest));
}

TEST_CASE("What is frozen beside something trained has a gradient in the flat one, and no optimizer state",
          "[distributed]") {
  const Log log = run_log(tiny_llama(kInBf16 + R"(, "stage": "custom", "train_only": ["norm"])", fsdp1(2)));
  std::int64_t largest = 0;
  for (const StorageRecord& storage : log.storages)
    if (storage.role == Role::gradient) largest = std::max(largest, storage.bytes);
  CHECK(largest == 2 * kRest);
  CHECK(alive_at(log, Role::optimizer_state, PhaseName::forward, 2) < 2 * 2 * 64 + 4 * 3);
}

TEST_CASE("The rank that is told of is the one whose optimizer keeps most", "[distributed]") {
  const std::string training = kInFp32 + R"(, "stage": "custom", "train_only": ["lm_head"])";
  const auto states = [&](const std::string& rank) {
    return alive_at(run_log(tiny_llama(training, fsdp1(4, "", rank))), Role::optimizer_state, PhaseName::forward, 2);
  };
  CHECK(states(R"(, "rank": 0)") == 0);
  CHECK(states("") == std::max(states(R"(, "rank": 2)"), states(R"(, "rank": 3)")));
  CHECK(states("") > 0);
}

TEST_CASE("Offloaded, parts, gradients and states are the host's", "[distributed]") {
  const Simulation s = simulation_of(tiny_llama(kInFp32, fsdp1(2, R"("cpu_offload": true)")));
  for (const Role role : {Role::parameter, Role::gradient, Role::optimizer_state})
    CHECK(alive_at(s.log, role, PhaseName::optimizer, 2) == 0);
  CHECK(s.host[HostPart::optimizer_states] == 2 * 4 * flat_elements(2));
  // Pinned, each rounded up to a power of two.
  CHECK(s.host[HostPart::parameters] >= 4 * flat_elements(2));
  CHECK(s.host[HostPart::parameters] < 2 * 4 * flat_elements(2));
  CHECK(s.host[HostPart::gradients] == s.host[HostPart::parameters]);
}

TEST_CASE("Units of two dtypes, or partly frozen without original parameters, are refused", "[distributed]") {
  const auto refused = [](const std::string& job) {
    const Simulation s = simulation_of(job);
    REQUIRE(s.refusal);
    return s.refusal->pointer;
  };
  CHECK(refused(tiny_llama(kInBf16 + R"(, "lora": {"rank": 4, "target_modules": ["q_proj"]})", fsdp1(2))) ==
        "/training/lora/autocast_adapter_dtype");
  CHECK(refused(tiny_llava(kInBf16 + R"(, "stage": "finetune")", fsdp1(2, R"("use_orig_params": false)"))) ==
        "/parallel/fsdp/use_orig_params");
}

TEST_CASE("4-bit weights are sharded where they are stored as the parameters beside them", "[distributed]") {
  const auto qlora = [](const std::string& storage, bool prepares) {
    return kInBf16 + R"(, "lora": {"rank": 4, "target_modules": ["q_proj"], "autocast_adapter_dtype": false},
      "quantization": {"load_in_4bit": true, "bnb_4bit_compute_dtype": "bfloat16", "bnb_4bit_quant_storage": ")" +
           storage + R"(", "prepare_model_for_kbit_training": )" + (prepares ? "true}" : "false}");
  };
  const Result<Estimate> sharded = estimate(tiny_llama(qlora("bfloat16", false), fsdp1(2)));
  REQUIRE(sharded);
  const std::string at = "/training/quantization/";
  CHECK(estimate(tiny_llama(qlora("uint8", false), fsdp1(2))).error().pointer == at + "bnb_4bit_quant_storage");
  CHECK(estimate(tiny_llama(qlora("bfloat16", true), fsdp1(2))).error().pointer ==
        at + "prepare_model_for_kbit_training");
  const std::string kept = R"("sharding": "SHARD_GRAD_OP")";
  CHECK(estimate(tiny_llama(qlora("bfloat16", false), fsdp1(2, kept))).error().pointer == "/parallel/fsdp/sharding");
}

TEST_CASE("Every gathered unit is let go, and every free has its allocation", "[distributed]") {
  const std::string checkpointing =
      GENERATE("", R"(, "activation_checkpointing": "non-reentrant")", R"(, "activation_checkpointing": "reentrant")");
  const std::string options = GENERATE("", R"("forward_prefetch": true, "backward_prefetch": "BACKWARD_POST")",
                                       R"("wrap": [])", R"("cpu_offload": true)");
  const std::string stage = GENERATE(R"(, "stage": "finetune")", R"(, "stage": "full")", R"(, "stage": "pretrain")");
  // It stops where reentrant checkpoints are no units of their own.
  if (checkpointing.ends_with("\"reentrant\"") && options.starts_with("\"wrap\"") && !stage.ends_with("\"pretrain\""))
    return;
  const Log log = run_log(tiny_llava(kInBf16 + checkpointing + stage, fsdp1(2, options)));
  check_frees(log);
  const std::int64_t sharded = alive_at(log, Role::parameter, PhaseName::forward, 1);
  CHECK(alive_at(log, Role::parameter, PhaseName::forward, 2) == sharded);
  CHECK(alive_at(log, Role::parameter, PhaseName::optimizer, 2) == sharded);
}

TEST_CASE("Reentrant checkpoints want each block to be a unit, or frozen", "[distributed]") {
  const std::string reentrant = kInBf16 + R"(, "activation_checkpointing": "reentrant")",
                    root = R"("wrap": ["CLIPEncoderLayer"])";
  const Result<Estimate> stopped = estimate(tiny_llama(reentrant, fsdp1(2, root)));
  REQUIRE_FALSE(stopped);
  CHECK(stopped.error().pointer == "/training/activation_checkpointing");
  CHECK(stopped.error().message.find("LlamaDecoderLayer") != std::string::npos);
  CHECK(estimate(tiny_llama(reentrant, fsdp1(2))));
  for (const std::string& whole : {fsdp1(1, root), fsdp1(2, root + R"(, "sharding": "NO_SHARD")")})
    CHECK(estimate(tiny_llama(reentrant, whole)).error().code == "not-modelled");
  const std::string cast = root + R"(, "sharding": "NO_SHARD", "param_dtype": "fp16")";
  CHECK(estimate(tiny_llama(reentrant, fsdp1(2, cast))).error().code == "inconsistent");
  CHECK(estimate(tiny_llama(kInBf16 + R"(, "activation_checkpointing": "non-reentrant")", fsdp1(2, root))));
  CHECK(estimate(tiny_llama(reentrant + R"(, "stage": "custom", "train_only": ["lm_head"])", fsdp1(2, root))));
}

}  // namespace
}  // namespace oometer
