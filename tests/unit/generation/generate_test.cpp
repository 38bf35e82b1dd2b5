#include <algorithm>
#include <cstdlib>
#include <optional>
#include <string_view>

#include "cuda/replay.h"
#include "jobs.h"

namespace oometer {
namespace {

std::string inference(const std::string& more = "") {
  return R"(, "task": "inference", "inference": {"new_tokens": 6)" + more + "}";
}

constexpr std::int64_t kTokenBytes = 2LL * 2 * 2 * 16 * 2 * 2;  // keys, values; 2 layers, heads of 16, samples, bytes

/// Without a role: of all.
std::int64_t most_alive(const Log& log, std::optional<Role> role) {
  std::int64_t alive = 0, most = 0;
  for (const Event& event : log.events) {
    if (role && log.storages[event.storage].role != *role) continue;
    alive += log.storages[event.storage].bytes * (event.kind == EventKind::alloc ? 1 : -1);
    most = std::max(most, alive);
  }
  return most;
}

TEST_CASE("A dynamic cache holds each token once, and one layer's keys or values twice while they grow",
          "[inference]") {
  const Log log = run_log(tiny_llama(R"("precision": "bf16")", inference()));
  CHECK(alive_at(log, Role::kv_cache, PhaseName::decode, 1) == 64 * kTokenBytes);
  const std::int64_t states = 68 * kTokenBytes / 4;  // a layer's keys before the last step
  CHECK(most_alive(log, Role::kv_cache) == 69 * kTokenBytes + states);
}

TEST_CASE("A static cache has its size from the first token on", "[inference]") {
  const Log log =
      run_log(tiny_llama(R"("precision": "bf16")", inference(R"(, "cache": {"implementation": "static"})")));
  CHECK(alive_at(log, Role::kv_cache, PhaseName::decode, 1) == 69 * kTokenBytes + 2 * 8);
  CHECK(most_alive(log, Role::kv_cache) == 69 * kTokenBytes + 2 * 8);
  const Log longer = run_log(tiny_llama(R"("precision": "bf16")",
                                        inference(R"(, "cache": {"implementation": "static", "max_cache_len": 100})")));
  CHECK(most_alive(longer, Role::kv_cache) == 100 * kTokenBytes + 2 * 8);
}

TEST_CASE("Later turns find the earlier ones in the cache", "[inference]") {
  const Log log = run_log(tiny_llama(R"("precision": "bf16")", inference(R"(, "turns": 3, "turn_tokens": 10)")));
  CHECK(log.phases.size() == 7);
  CHECK(alive_at(log, Role::kv_cache, PhaseName::decode, 2) == (64 + 6 + 10) * kTokenBytes);
  CHECK(alive_at(log, Role::kv_cache, PhaseName::decode, 3) == (64 + 2 * 6 + 2 * 10) * kTokenBytes);
}

TEST_CASE("Images come with later turns where the class takes them", "[inference]") {
  const auto with = [](const char* preset, const char* data) {
    return parse_job(std::string(R"({"model": {"preset": ")") + preset + R"("}, "task": "inference", "data": {)" +
                     data + R"(}, "inference": {"new_tokens": 4, "turns": 2, "turn_tokens": 2000, "turn_images": 1}})");
  };
  const auto pointer = [](const Result<Job>& job) { return job ? "" : job.error().pointer; };
  CHECK(pointer(with("llava-1.5-7b", "")).empty());
  CHECK(pointer(with("smolvlm-256m", R"("sequence_length": 2000)")).empty());
  CHECK(pointer(with("llava-1.5-7b", R"("images_per_sample": 0)")) == "/inference/turn_images");
  CHECK(pointer(with("qwen2.5-vl-3b", "")) == "/inference/turn_images");
  CHECK(pointer(with("llama-3-8b", "")) == "/inference/turn_images");
}

TEST_CASE("An offloaded cache has two layers on the GPU at most, and all of it on the host", "[inference]") {
  const Job job = job_of(R"({"model": {"preset": "llama-3-8b", "config": {"num_hidden_layers": 8}}, "task": "inference",
                         "data": {"sequence_length": 1000},
                         "inference": {"new_tokens": 5, "cache": {"implementation": "offloaded"}}})");
  const Simulation simulation = simulate(job, resolve_behaviours(job.runtime));
  const std::int64_t layer = 2 * 8 * 128 * 2;  // bytes of a token
  CHECK(simulation.generated.host_bytes == 8 * 1004 * layer);
  // One that runs, the one before it in halves, and the next one.
  CHECK(most_alive(simulation.log, Role::kv_cache) <= 3 * 1004 * layer);
  CHECK(most_alive(simulation.log, Role::kv_cache) > 2 * 1000 * layer);
}

// Its source on the ghost, with PyTorch's flash attention in flash-attn's place, gave the same log event by event.
TEST_CASE("HeadInfer has three key heads on the GPU at most, and the others on the host", "[inference]") {
  const auto run = [](const char* preset, const std::string& more) {
    const Job job = job_of(R"({"model": {"preset": ")" + std::string(preset) + R"(", "config": {)" + more +
                           R"("num_hidden_layers": 4}}, "task": "inference",
                           "data": {"sequence_length": 1000},
                           "inference": {"new_tokens": 5, "cache": {"implementation": "headinfer"}}})");
    return simulate(job, resolve_behaviours(job.runtime));
  };
  const Simulation simulation = run("llama-3-8b", "");
  const std::int64_t head = 2 * 128 * 2;  // bytes of a token
  // At the end the last head's are there, and the first one's, which were prefetched.
  CHECK(simulation.generated.host_bytes == (4 * 8 - 2) * 1004 * head);
  CHECK(alive_at(simulation.log, Role::kv_cache, PhaseName::decode, 1) == 2 * 1000 * head);
  CHECK(most_alive(simulation.log, Role::kv_cache) == 3 * 1004 * head - 2 * head / 2);
  CHECK(run("llama-3-8b", R"("num_key_value_heads": 32, )").generated.host_bytes == (4 * 32 - 2) * 1004 * head);
  CHECK(run("qwen2.5-7b", "").generated.host_bytes == (4 * 4 - 2) * 1004 * head);
}

TEST_CASE("A prompt in parts needs less than at once, and leaves the same cache", "[inference]") {
  const auto run = [](const std::string& more) {
    return run_log(tiny_llama(R"("precision": "bf16")", inference(more)));
  };
  const Log whole = run(""), parts = run(R"(, "prefill_chunk_size": 20)");
  CHECK(most_alive(parts, {}) < most_alive(whole, {}));
  CHECK(alive_at(parts, Role::kv_cache, PhaseName::decode, 1) == alive_at(whole, Role::kv_cache, PhaseName::decode, 1));
}

TEST_CASE("A paged cache needs whole blocks for each conversation, and a shared prefix once", "[inference]") {
  const auto blocks = [](const std::string& cache) {
    const Job job = job_of(R"({"model": {"preset": "llama-3-8b"}, "task": "inference",
                           "data": {"sequence_length": 1000, "micro_batch_size": 10},
                           "inference": {"new_tokens": 24, "cache": {"implementation": "paged")" +
                           cache + "}}}");
    const Generated generated = simulate(job, resolve_behaviours(job.runtime)).generated;
    CHECK(generated.block_bytes % (32 * 2 * 8 * 128 * 2) == 0);
    return generated.blocks;
  };
  CHECK(blocks("") == 10 * 64);
  CHECK(blocks(R"(, "block_size": 128)") == 10 * 8);
  CHECK(blocks(R"(, "shared_prefix": 500)") == 31 + 10 * (64 - 31));
}

TEST_CASE("generate() computes the last token's logits unless it is told otherwise", "[inference]") {
  const auto largest_logits = [](const std::string& more) {
    const Log log = run_log(tiny_llama(R"("precision": "bf16")", inference(more)));
    std::int64_t most = 0;
    for (const StorageRecord& record : log.storages)
      if (module_path(log, record.module) == "lm_head" && record.role == Role::tensor)
        most = std::max(most, record.bytes);
    return most;
  };
  CHECK(largest_logits("") == 2 * 512 * 2);
  CHECK(largest_logits(R"(, "logits": "all")") == 2 * 64 * 512 * 2);
}

TEST_CASE("A breakdown of inference sums to the peak, and names its cache", "[inference]") {
  for (const std::string& text : {tiny_llama(R"("precision": "bf16")", inference()),
                                  tiny_llava(R"("precision": "bf16")", inference(R"(, "turns": 2)"))}) {
    const Result<Estimate> answer = estimate(text);
    REQUIRE(answer);
    const Factors& breakdown = answer->report.breakdown;
    CHECK(breakdown.sum() == answer->report.peak.allocated);
    CHECK(breakdown[Factor::kv_cache] > 0);
    CHECK(breakdown[Factor::gradients] + breakdown[Factor::optimizer_states] == 0);
    CHECK(answer->simulation.trainable == 0);
  }
}

TEST_CASE("A model that does not generate runs forward once", "[inference]") {
  const Result<Estimate> answer = estimate(
      R"({"model": {"preset": "clip-vit-l-14-336", "config": {"architectures": ["CLIPVisionModel"]}}, "task": "inference"})");
  REQUIRE(answer);
  CHECK(answer->simulation.log.phases.size() == 2);
  CHECK(answer->report.breakdown[Factor::kv_cache] == 0);
}

TEST_CASE("CLIP computes its loss in training alone", "[inference]") {
  const auto computes_loss = [](const char* task) {
    const Result<Estimate> answer =
        estimate(std::string(R"({"model": {"preset": "clip-vit-l-14"}, "task": ")") + task + R"("})");
    REQUIRE(answer);
    const Log& log = answer->simulation.log;
    return std::any_of(log.events.begin(), log.events.end(),
                       [&](const Event& event) { return std::string_view(log.ops[event.op]) == "nll_loss_forward"; });
  };
  CHECK(computes_loss("train"));
  CHECK_FALSE(computes_loss("inference"));  // return_loss is not given (CLIPModel.forward)
}

TEST_CASE("A job of inference is written as it was read", "[inference]") {
  const Job job = job_of(
      tiny_llama(R"("precision": "fp16", "attention": "eager")",
                 inference(R"(, "logits": "all", "cache": {"implementation": "static", "max_cache_len": 500})")));
  CHECK(job_of(to_json(job)) == job);
}

/// A model whose cache's tensors lie in small segments, in those of 20 MiB, or in their own.
Job long_answer(std::int64_t users, std::int64_t prompt, std::int64_t tokens) {
  return job_of(R"({"model": {"config": {"model_type": "llama", "hidden_size": 1024, "intermediate_size": 2816,
                  "vocab_size": 32000, "num_hidden_layers": 6, "num_attention_heads": 16, "num_key_value_heads": 8}},
                  "task": "inference", "inference": {"new_tokens": )" +
                std::to_string(tokens) + R"(}, "data": {"micro_batch_size": )" + std::to_string(users) +
                R"(, "sequence_length": )" + std::to_string(prompt) + "}}");
}

TEST_CASE("Skipped tokens change no peak of what is asked for, and little of what is reserved", "[inference]") {
  struct Case {
    std::int64_t users, prompt, tokens;
  };
  for (const Case& c :
       {Case{1, 20, 200}, Case{1, 500, 700}, Case{4, 500, 600}, Case{16, 300, 600}, Case{40, 300, 500}}) {
    INFO(c.users << " users, " << c.prompt << " tokens, " << c.tokens << " more");
    const Job job = long_answer(c.users, c.prompt, c.tokens);
    const Behaviours behaviours = resolve_behaviours(job.runtime);
    const Simulation all = simulate(job, behaviours, false), some = simulate(job, behaviours);
    CHECK_FALSE(all.generated.skipped);
    REQUIRE(some.generated.skipped);
    CHECK(some.log.events.size() < all.log.events.size() / 5);
    CHECK(most_alive(some.log, {}) == most_alive(all.log, {}));
    const MemoryStats truth = replay(all.log, {}).peak, peak = replay(some.log, {}).peak;
    CHECK(std::abs(peak.allocated - truth.allocated) <= truth.allocated / 200);
    CHECK(std::abs(peak.reserved - truth.reserved) <= truth.reserved / 50);
  }
}

}  // namespace
}  // namespace oometer
