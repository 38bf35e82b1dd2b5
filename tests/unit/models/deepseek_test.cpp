#include <catch2/catch_test_macros.hpp>
#include <string>

#include "jobs.h"
#include "trace/same_log.h"

namespace oometer {
namespace {

/// Two dense layers, five with eight experts, three of them a token.
std::string tiny_deepseek(const std::string& type, const std::string& members, const std::string& more = "",
                          const std::string& experts = "8") {
  return R"({"model": {"config": {"model_type": ")" + type + R"(", "hidden_size": 64, "intermediate_size": 96,
             "moe_intermediate_size": 32, "num_hidden_layers": 7, "num_attention_heads": 4, "num_key_value_heads": 4,
             "vocab_size": 512, "kv_lora_rank": 32, "q_lora_rank": null, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8,
             "v_head_dim": 16, "n_routed_experts": )" +
         experts + R"(, "n_shared_experts": 1, "num_experts_per_tok": 3, "n_group": 4,
             "topk_group": 2, "first_k_dense_replace": 2)" +
         more + R"(}}, "data": {"micro_batch_size": 2, "sequence_length": 40})" + members + "}";
}

std::string inference(const std::string& more = "") {
  return R"(, "task": "inference", "inference": {"new_tokens": 6)" + more + "}";
}

TEST_CASE("A latent cache keeps the latent and the shared key of each token", "[models][inference]") {
  constexpr std::int64_t kToken = 7 * (32 + 8) * 2 * 2;  // layers, elements, samples, bytes
  for (const char* type : {"deepseek_v2", "deepseek_v3"}) {
    INFO(type);
    const Log log = run_log(tiny_deepseek(type, inference()));
    CHECK(alive_at(log, Role::kv_cache, PhaseName::decode, 1) == 40 * kToken);
    const Job paged = job_of(tiny_deepseek(type, inference(R"(, "cache": {"implementation": "paged"})")));
    const Generated generated = simulate(paged, resolve_behaviours(paged.runtime)).generated;
    CHECK(generated.block_bytes == 16 * kToken / 2);
    CHECK(generated.blocks == 2 * 3);
  }
}

TEST_CASE("LoRA's targets among experts", "[models][peft]") {
  const auto lora = [](const std::string& targets, const std::string& more = "") {
    return parse_job(
        tiny_deepseek("deepseek_v2", R"(, "training": {"lora": {"target_modules": )" + targets + more + "}}"));
  };
  const auto parameters = [&](const std::string& targets) {
    const Result<Job> job = lora(targets);
    REQUIRE(job);
    return job->training.lora->target_parameters;
  };
  using Names = std::vector<std::string>;
  CHECK(parameters(R"x(["q_proj", "gate_proj", "up_proj"])x") == Names{"gate_up_proj"});
  CHECK(parameters(R"x(["mlp.down_proj"])x") == Names{"down_proj"});
  CHECK(parameters(R"x(".*experts.*")x") == Names{"gate_up_proj", "down_proj"});
  CHECK(parameters(R"x(".*\\.2\\..*gate")x") == Names{"gate.weight"});
  CHECK(parameters(R"x("all-linear")x") == Names{"gate.weight", "gate_up_proj", "down_proj"});
  CHECK(lora(R"x(["gate_proj", "up_proj"])x")->training.lora->rank_pattern ==
        NumberByModule{{".*\\.gate_up_proj", 16}});
  // What is fused cannot be adapted by halves.
  for (const char* half : {R"x(["q_proj", "gate_proj"])x", R"x(".*\\.(q_proj|up_proj)")x"}) {
    INFO(half);
    const Result<Job> job = lora(half);
    REQUIRE_FALSE(job);
    CHECK(job.error().code == "inconsistent");
    CHECK(job.error().pointer == "/training/lora/target_modules");
    CHECK(job.error().message.find("because they are fused into gate_up_proj") != std::string::npos);
  }
  for (const char* key : {"dropout", "use_dora", "lora_bias"}) {
    const std::string value = key == std::string("dropout") ? "0.1" : "true";
    const Result<Job> job = lora(R"x(["down_proj"])x", std::string(", \"") + key + "\": " + value);
    REQUIRE_FALSE(job);
    CHECK(job.error().pointer == std::string("/training/lora/") + key);
  }
  // A text stands for its names, in every layer.
  const Result<Job> some = lora(R"x("model\\.layers\\.[12]\\.self_attn\\.(q_proj|o_proj)")x");
  REQUIRE(some);
  CHECK(some->training.lora->target_modules.names == Names{"o_proj", "q_proj"});
  CHECK(some->training.lora->target_modules.pattern.empty());
  CHECK(some->training.lora->target_parameters.empty());
  CHECK(lora(R"x("nothing")x")->training.lora->target_modules.pattern == "nothing");
}

TEST_CASE("MTLA's cache has an entry for so many tokens", "[models][inference]") {
  constexpr std::int64_t kEntry = 7 * (32 + 8) * 2 * 2;
  for (const char* type : {"deepseek_v2", "deepseek_v3"})
    for (const std::int64_t stride : {2, 3, 7}) {
      CAPTURE(type, stride);
      const std::string cache = R"(, "cache": {"implementation": "mtla", "stride": )" + std::to_string(stride) + "}";
      const Log log = run_log(tiny_deepseek(type, inference(cache)));
      CHECK(alive_at(log, Role::kv_cache, PhaseName::decode, 1) == (40 + stride - 1) / stride * kEntry);
      std::int64_t hypernet = 0;
      for (const StorageRecord& storage : log.storages)
        if (storage.role == Role::parameter &&
            module_path(log, storage.module).find("hypernet_down") != std::string::npos)
          hypernet += storage.bytes;
      CHECK(hypernet == 7 * 2 * (32 * 8 + 8) * 2);
    }
}

TEST_CASE("Decoding copies an expert's weights for each token that it gets", "[models][inference]") {
  const Log log = run_log(tiny_deepseek("deepseek_v2", inference()));
  std::int64_t copies = 0;
  for (const StorageRecord& storage : log.storages)
    copies += storage.alloc_event >= log.phases.back().first_event && storage.bytes == 2 * 3 * 64 * 64 * 2;
  CHECK(copies == 5 * 3);  // gate_up_proj of five layers, in the steps that are run in full
}

TEST_CASE("Equal layers of a stack that begins with others are written as they would run", "[models]") {
  for (const char* type : {"deepseek_v2", "deepseek_v3"})
    for (const char* mode : {"none", "non-reentrant", "reentrant"}) {
      CAPTURE(type, mode);
      const Job job =
          job_of(tiny_deepseek(type, std::string(R"(, "training": {"activation_checkpointing": ")") + mode + R"("})"));
      const Behaviours behaviours = resolve_behaviours(job.runtime);
      CHECK(difference(simulate(job, behaviours, true).log, simulate(job, behaviours, false).log).empty());
    }
}

TEST_CASE("Experts take what their tokens take, wherever those go", "[models]") {
  // Twice the experts: more weights, and no more activations.
  const auto kept = [](const std::string& experts) {
    const Log log = run_log(tiny_deepseek("deepseek_v2", "", "", experts));
    std::int64_t bytes = 0;
    for (const StorageRecord& storage : log.storages)
      if (storage.saved && module_path(log, storage.module).ends_with("mlp.experts") && storage.role == Role::tensor)
        bytes += storage.bytes;
    return bytes;
  };
  // But for the offsets, four bytes an expert of each of five layers in both steps.
  CHECK(kept("16") - kept("8") == 2 * 5 * 8 * 4);
}

}  // namespace
}  // namespace oometer
