#include <nlohmann/json.hpp>
#include <random>
#include <vector>

#include "../jobs.h"
#include "../mutate.h"
#include "report/report.h"

namespace oometer {
namespace {

using nlohmann::json;

/// Small jobs in every strategy that DeepSpeed offers, with the keys that a real ds_config has.
std::vector<json> deepspeed_jobs() {
  const json zero3 = json::parse(R"({"stage": 3, "overlap_comm": true, "contiguous_gradients": true,
      "sub_group_size": 1e9, "reduce_bucket_size": "auto", "stage3_prefetch_bucket_size": "auto",
      "stage3_param_persistence_threshold": "auto", "stage3_max_live_parameters": 1e9,
      "stage3_max_reuse_distance": 1e9, "stage3_gather_16bit_weights_on_model_save": true})");
  json offload = zero3;
  offload["offload_optimizer"] = offload["offload_param"] = {{"device", "cpu"}, {"pin_memory", true}};
  const json zero2 = json::parse(R"({"stage": 2, "overlap_comm": true, "contiguous_gradients": true,
      "reduce_bucket_size": 1000, "allgather_bucket_size": 5e8, "round_robin_gradients": false})");
  std::vector<json> jobs;
  for (const json& zero : {zero2, zero3, offload})
    for (const char* training : {R"("precision": "bf16")", R"("precision": "fp16", "stage": "full")",
                                 R"("precision": "bf16", "lora": {"rank": 4})"}) {
      json job = json::parse(tiny_llama(training));
      const json half = {{"enabled", "auto"}};
      job["parallel"] = {{"strategy", "deepspeed"}, {"data", 2}};
      job["parallel"]["ds_config"] = {{"fp16", half},
                                      {"bf16", half},
                                      {"zero_optimization", zero},
                                      {"gradient_clipping", 1.0},
                                      {"train_micro_batch_size_per_gpu", "auto"},
                                      {"gradient_accumulation_steps", "auto"}};
      jobs.push_back(job);
    }
  for (const char* config :
       {R"({"distributed_type": "DEEPSPEED", "num_processes": 2, "mixed_precision": "bf16", "machine_rank": 0,
            "deepspeed_config": {"zero_stage": 2, "offload_optimizer_device": "cpu", "gradient_accumulation_steps": 2}})",
        R"({"distributed_type": "FSDP", "num_processes": 3, "mixed_precision": "bf16", "use_cpu": false,
            "fsdp_config": {"fsdp_version": 2, "fsdp_offload_params": false, "fsdp_reshard_after_forward": true}})",
        R"({"distributed_type": "FSDP", "num_processes": 2, "mixed_precision": "no",
            "fsdp_config": {"fsdp_sharding_strategy": "SHARD_GRAD_OP", "fsdp_use_orig_params": true}})"}) {
    json job = json::parse(tiny_llama(""));
    job["parallel"]["accelerate_config"] = json::parse(config);
    jobs.push_back(job);
  }
  return jobs;
}

TEST_CASE("300 mutated jobs and ds_configs give an answer that adds up or say what is wrong", "[job]") {
  const json kValues = json::parse(
      R"([0, 1, 2, 3, -1, 7, 1000, 65536, 5e8, 1e18, 1.5, "auto", "cpu", "nvme", "x", "", true, false, null, {}, []])");
  constexpr const char* kPlaces[] = {"/parallel",
                                     "/parallel/ds_config",
                                     "/parallel/ds_config/zero_optimization",
                                     "/parallel/accelerate_config",
                                     "/parallel/accelerate_config/deepspeed_config",
                                     "/parallel/accelerate_config/fsdp_config",
                                     "/training",
                                     "/data"};
  std::mt19937 random(20250107);
  const auto below = [&](std::size_t n) { return static_cast<std::size_t>(random()) % n; };
  const std::vector<json> originals = deepspeed_jobs();
  for (const json& original : originals) REQUIRE(estimate(original.dump()).has_value());
  int answers = 0, errors = 0;
  for (int i = 0; i < 300; ++i) {
    json job = originals[below(originals.size())];
    const std::vector<json::json_pointer> misspelt =
        mutate(job, kPlaces, kValues, below, [&](const std::string& key, json& place) {
          place[key + "s"] = kValues[below(kValues.size())];
          return key + "s";
        });
    INFO(job.dump());
    const Result<Estimate> answer = estimate(job.dump());
    if (!answer) {
      ++errors;
      CHECK_FALSE(answer.error().message.empty());
      CHECK((answer.error().pointer.empty() || answer.error().pointer.front() == '/'));
      continue;
    }
    ++answers;
    // Nothing that is not known is passed over.
    for (const json::json_pointer& pointer : misspelt) CHECK_FALSE(job.contains(pointer));
    CHECK(answer->report.peak.allocated > 0);
    CHECK(answer->report.peak.reserved >= answer->report.peak.allocated);
    // The same job in other words has the same answer.
    const Result<Job> read = parse_job(job.dump());
    REQUIRE(read);
    const Result<Estimate> again = estimate(to_json(*read));
    REQUIRE(again);
    CHECK(again->report.peak.allocated == answer->report.peak.allocated);
  }
  CHECK(answers > 60);
  CHECK(errors > 60);
}

}  // namespace
}  // namespace oometer
