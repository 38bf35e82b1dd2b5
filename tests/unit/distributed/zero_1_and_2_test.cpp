#include "distributed/zero_1_and_2.h"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <limits>
#include <string>

#include "../jobs.h"
#include "job/parse.h"
#include "job/simulate.h"

namespace oometer {
namespace {

/// A Llama of two blocks. `parallel`: the members of the job's object of that name; `more`: of the job.
Log log_of(const std::string& parallel, const std::string& training = "", const std::string& more = "") {
  const std::string text =
      R"({"model": {"config": {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 64,
          "intermediate_size": 176, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 4, "vocab_size": 512}},
         "data": {"micro_batch_size": 2, "sequence_length": 32},
         "training": {"precision": "bf16")" +
      training + R"(}, "parallel": {)" + parallel + "}" + more + "}";
  const Result<Job> job = parse_job(text);
  INFO(text);
  if (!job) FAIL(job.error().pointer << ": " << job.error().message);
  return simulate(*job, resolve_behaviours(job->runtime)).log;
}

std::string zero2(std::int64_t world, const std::string& more = "") {
  return R"("strategy": "deepspeed", "zero_stage": 2, "data": )" + std::to_string(world) + more;
}

/// Bytes of a role that are alive when an event is about to happen.
std::int64_t alive(const Log& log, Role role, std::uint32_t event) {
  std::int64_t bytes = 0;
  for (const StorageRecord& storage : log.storages)
    if (storage.role == role && storage.alloc_event < event && storage.free_event >= event) bytes += storage.bytes;
  return bytes;
}

std::uint32_t phase_begin(const Log& log, PhaseName name, int iteration) {
  for (const PhaseMark& phase : log.phases)
    if (phase.name == name && phase.iteration == iteration) return phase.first_event;
  FAIL("no such phase");
  return 0;
}

constexpr std::int64_t kHidden = 64, kVocabulary = 512, kIntermediate = 176, kLayers = 2;
/// Without weight decay: two norms a block and the last.
constexpr std::int64_t kNorms = (2 * kLayers + 1) * kHidden;
constexpr std::int64_t kMatrices =
    2 * kVocabulary * kHidden + kLayers * (4 * kHidden * kHidden + 3 * kHidden * kIntermediate);

std::int64_t padded(std::int64_t numel, std::int64_t world) {
  return (numel + 2 * world - 1) / (2 * world) * 2 * world;
}

TEST_CASE("After initialisation: parameters whole, masters by rank", "[distributed]") {
  const std::int64_t world = GENERATE(1, 2, 3, 8);
  const Log log = log_of(zero2(world));
  const std::uint32_t begin = phase_begin(log, PhaseName::forward, 1);
  const std::int64_t flat = padded(kMatrices, world) + padded(kNorms, world);
  CHECK(alive(log, Role::parameter, begin) == 2 * flat);
  CHECK(alive(log, Role::optimizer_state, begin) == 4 * flat / world);
  CHECK(alive(log, Role::gradient, begin) == 0);
}

TEST_CASE("Between steps: 2 P + (4 + 8) P / N, no gradient", "[distributed]") {
  const std::int64_t world = GENERATE(1, 2, 8);
  const Log log = log_of(zero2(world));
  const std::uint32_t begin = phase_begin(log, PhaseName::forward, 2);
  const std::int64_t flat = padded(kMatrices, world) + padded(kNorms, world);
  CHECK(alive(log, Role::parameter, begin) == 2 * flat);
  // The fused kernel keeps a step counter for each of the two groups.
  CHECK(alive(log, Role::optimizer_state, begin) == 12 * flat / world + 2 * 4);
  CHECK(alive(log, Role::gradient, begin) == 0);
}

TEST_CASE("Stage 1 keeps as much as stage 2 between steps; without overlap all gradients until backward is over",
          "[distributed]") {
  const auto run = [](const std::string& options) {
    return log_of(R"("strategy": "deepspeed", "data": 2, "ds_config": {"zero_optimization": {)" + options + "}}");
  };
  const std::string bucket = R"(, "reduce_bucket_size": 5000)";
  const Log stage2 = run(R"("stage": 2)" + bucket), stage1 = run(R"("stage": 1)" + bucket);
  for (const Role role : {Role::parameter, Role::optimizer_state, Role::gradient})
    CHECK(alive(stage1, role, phase_begin(stage1, PhaseName::forward, 2)) ==
          alive(stage2, role, phase_begin(stage2, PhaseName::forward, 2)));
  const auto most_gradients = [](const Log& log) {
    std::int64_t most = 0;
    const std::uint32_t end = phase_begin(log, PhaseName::optimizer, 1);
    for (std::uint32_t i = phase_begin(log, PhaseName::backward, 1); i <= end; ++i)
      most = std::max(most, alive(log, Role::gradient, i));
    return most;
  };
  const std::int64_t all = 2 * (kMatrices + kNorms);
  CHECK(most_gradients(stage1) >= all);
  CHECK(most_gradients(stage2) < all);
  CHECK(most_gradients(run(R"("stage": 1, "overlap_comm": true)" + bucket)) < most_gradients(stage1));
}

TEST_CASE("Stage 1 reduces in the last micro-step only", "[distributed]") {
  const Log log =
      log_of(R"("strategy": "deepspeed", "data": 2, "zero_stage": 1)", R"(, "gradient_accumulation_steps": 2)");
  std::uint32_t second = 0;  // where the second micro-step's forward begins
  for (const PhaseMark& phase : log.phases)
    if (phase.name == PhaseName::forward && phase.iteration == 1) second = phase.first_event;
  CHECK(alive(log, Role::gradient, second) >= 2 * (kMatrices + kNorms));
}

TEST_CASE("DeepSpeed 0.12.6 makes the moments at initialisation", "[distributed]") {
  const Log log = log_of(zero2(2), "", R"(, "runtime": {"deepspeed": "0.12.6"})");
  const std::int64_t flat = padded(kMatrices, 2) + padded(kNorms, 2);
  CHECK(alive(log, Role::optimizer_state, phase_begin(log, PhaseName::forward, 1)) == 12 * flat / 2 + 2 * 4);
}

TEST_CASE("A partition's gradients depend on the rank", "[distributed]") {
  std::int64_t most = 0, least = std::numeric_limits<std::int64_t>::max();
  for (int rank = 0; rank < 4; ++rank) {
    const Log log = log_of(zero2(4, ", \"rank\": " + std::to_string(rank)));
    const std::int64_t kept = alive(log, Role::gradient, phase_begin(log, PhaseName::optimizer, 1));
    most = std::max(most, kept);
    least = std::min(least, kept);
  }
  CHECK(least < most);
  CHECK(most >= 2 * (padded(kMatrices, 4) + padded(kNorms, 4)) / 4);
}

TEST_CASE("An optimizer in host memory leaves the weights and one buffer", "[distributed]") {
  const std::int64_t world = GENERATE(1, 2, 8);
  const std::int64_t steps = GENERATE(1, 3);
  const std::string stage = GENERATE("1", "2");
  const std::string text =
      tiny_llama(R"("precision": "bf16", "gradient_accumulation_steps": )" + std::to_string(steps),
                 R"(, "parallel": {"strategy": "deepspeed", "rank": 0, "data": )" + std::to_string(world) +
                     R"(, "ds_config": {"zero_optimization": {"stage": )" + stage +
                     R"(, "reduce_bucket_size": 100000, "offload_optimizer": {"device": ")" + GENERATE("cpu", "nvme") +
                     R"("}}}})");
  const Simulation s = simulation_of(text);
  constexpr std::int64_t numel = 158016, norms = 5 * 64, largest = 512 * 64;
  const std::int64_t flat = padded(numel - norms, world) + padded(norms, world);
  for (const int iteration : {1, 2}) {
    CHECK(alive_at(s.log, Role::parameter, PhaseName::forward, iteration) == 2 * flat);
    CHECK(alive_at(s.log, Role::optimizer_state, PhaseName::forward, iteration) == 0);
    CHECK(alive_at(s.log, Role::gradient, PhaseName::forward, iteration) == 2 * largest);
  }
  // Masters, gradients, two moments, and the new weights on their way back; a buffer as large as the largest gradient.
  const std::int64_t kept = 18 * flat / world + 2 * largest;
  if (steps == 1)
    CHECK(s.host.sum() == kept);
  else  // whole gradients of what lies in the partition, if only in part
    CHECK(s.host.sum() >= kept + 2 * numel / world);
}

TEST_CASE("Every free has its allocation, once; no gradient outlives a step", "[distributed]") {
  const std::string runtime =
      GENERATE("", R"(, "runtime": {"deepspeed": "0.14.4"})", R"(, "runtime": {"deepspeed": "0.12.6"})");
  const std::string training =
      GENERATE("", R"(, "activation_checkpointing": "reentrant")", R"(, "gradient_accumulation_steps": 4)",
               R"(, "optimizer": {"implementation": "foreach"})");
  const std::string options = GENERATE(
      "", R"(, "ds_config": {"zero_optimization": {"stage": 2, "overlap_comm": true, "reduce_bucket_size": 5000}})",
      R"(, "ds_config": {"zero_optimization": {"stage": 2, "contiguous_gradients": false}})");
  const Log log =
      log_of(options.empty() ? zero2(2) : R"("strategy": "deepspeed", "data": 2)" + options, training, runtime);
  check_frees(log);
  CHECK(alive(log, Role::gradient, static_cast<std::uint32_t>(log.events.size())) == 0);
  CHECK(alive(log, Role::gradient, phase_begin(log, PhaseName::forward, 2)) == 0);
}

TEST_CASE("A step in which no gradient comes reduces nothing", "[distributed]") {
  // Reentrant checkpoints want a gradient of the embeddings, so that backward runs; the tower sees no image.
  const std::string job = tiny_llava(
      R"("precision": "bf16", "stage": "custom", "freeze": ["language_model", "lm_head"], "activation_checkpointing": "reentrant")",
      R"(, "parallel": {"strategy": "deepspeed", "data": 2, "ds_config": {"zero_optimization": {"stage": 2)",
      R"("images_per_sample": 0, "sequence_length": 64)");
  for (const char* more : {R"(, "contiguous_gradients": true}}})", R"(, "offload_optimizer": {"device": "cpu"}}}})"}) {
    const std::string text = job.substr(0, job.size() - 1) + more + "}";
    CHECK(simulation_of(text).trainable > 0);
  }
}

TEST_CASE("Reduction works on its own stream where communication overlaps", "[distributed]") {
  const auto streams = [](const Log& log) {
    int other = 0;
    for (const Event& event : log.events)
      if (event.kind == EventKind::alloc && event.stream != kDefaultStream) ++other;
    return other;
  };
  const std::string start =
      R"("strategy": "deepspeed", "data": 2, "ds_config": {"zero_optimization": {"stage": 2, "overlap_comm": )";
  CHECK(streams(log_of(start + "true}}")) > 0);
  CHECK(streams(log_of(start + "false}}")) == 0);
}

}  // namespace
}  // namespace oometer
