#include "job/fixes.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "jobs.h"

namespace oometer {
namespace {

using nlohmann::json;

/// The labels of the ways out of a refusal, each of which was checked to be one.
std::vector<std::string> ways_out(const json& job) {
  INFO(job);
  const json answer = json::parse(estimate_json(job.dump()));
  REQUIRE(answer.contains("error"));
  std::vector<std::string> labels;
  for (const json& fix : answer["error"].value("fixes", json::array())) {
    json changed = job;
    changed.merge_patch(fix.at("change"));
    INFO(changed);
    CHECK_FALSE(json::parse(estimate_json(changed.dump())).contains("error"));
    labels.push_back(fix.at("label"));
  }
  return labels;
}

json tiny(const std::string& training, const json& parallel = json::object()) {
  json job = json::parse(tiny_llama(training));
  if (!parallel.empty()) job["parallel"] = parallel;
  return job;
}

bool has(const std::vector<std::string>& labels, const std::string& label) {
  return std::find(labels.begin(), labels.end(), label) != labels.end();
}

const std::string kLoraAndHead =
    R"("precision": "bf16", "lora": {"target_modules": ["q_proj"], "also_train": ["lm_head"]})";
const json kZero2OnTwo = {{"strategy", "deepspeed"}, {"zero_stage", 2}, {"data", 2}};
const json kZero3OnTwo = {{"strategy", "deepspeed"}, {"zero_stage", 3}, {"data", 2}};

}  // namespace

TEST_CASE("A refusal with a known way out offers it", "[job]") {
  CHECK(has(ways_out(tiny(R"("precision": "bf16", "lora": {"target_modules": ["q_proj"]},
    "quantization": {"load_in_4bit": true})",
                          kZero2OnTwo)),
            "Switch to DDP"));
  CHECK(has(ways_out(tiny(R"("precision": "bf16", "lora": {"target_modules": ["q_proj"]},
    "quantization": {"load_in_4bit": true})",
                          {{"strategy", "deepspeed"}, {"zero_stage", 2}})),
            "Turn parallelism off"));
  const std::vector<std::string> adapters = ways_out(tiny(kLoraAndHead, kZero3OnTwo));
  REQUIRE_FALSE(adapters.empty());
  CHECK(adapters[0] == "Adapters in the weights' type");
  CHECK(has(adapters, "Switch to ZeRO-2"));
  CHECK(has(ways_out(tiny(R"("precision": "amp-bf16")", kZero2OnTwo)), "Weights in bf16"));
  CHECK(has(ways_out(tiny(R"("precision": "bf16", "optimizer": {"implementation": "bnb-8bit"})", kZero2OnTwo)),
            "Use the fused optimizer"));
  CHECK(has(ways_out(tiny(kInBf16, {{"data", 2}})), "Switch to DDP"));
  CHECK(has(ways_out(tiny(kInBf16, {{"strategy", "none"}, {"data", 2}})), "Use one GPU"));
  const json on_host = {{"stage", 2}, {"offload_param", {{"device", "cpu"}}}};
  CHECK(has(ways_out(tiny(kInBf16, {{"strategy", "deepspeed"}, {"ds_config", {{"zero_optimization", on_host}}}})),
            "Switch to ZeRO-3"));
  CHECK(has(ways_out(tiny(R"("precision": "fp32", "attention": "sdpa-flash")")), "Use SDPA"));
  const json capped = {{"model", {{"preset", "gemma-2-2b"}}},
                       {"data", {{"sequence_length", 64}}},
                       {"training", {{"precision", "bf16"}, {"attention", "sdpa"}}}};
  CHECK(has(ways_out(capped), "Use eager attention"));
  CHECK(has(ways_out(tiny(R"("precision": "bf16", "stage": "pretrain")")), "Train everything"));
  CHECK(has(ways_out(tiny(R"("precision": "bf16", "optimizer": {"momentum": 0.9})")), "Leave out momentum"));
}

TEST_CASE("A trainer's refusal leads to a plain loop", "[job]") {
  const std::string by_trainer = R"("precision": "bf16", "loop": "transformers.Trainer")";
  CHECK(has(ways_out(tiny(by_trainer + R"(, "save_on_cpu": "pinned")")), "Run a plain loop"));
}

TEST_CASE("The error of adapters that ZeRO-3 cannot take points at their type", "[job]") {
  const json answer = json::parse(estimate_json(tiny(kLoraAndHead, kZero3OnTwo).dump()));
  CHECK(answer["error"]["pointer"] == "/training/lora/autocast_adapter_dtype");
}

TEST_CASE("A file of accelerate is spelled out where a way out changes it", "[job]") {
  const json accelerate = {{"distributed_type", "DEEPSPEED"},
                           {"num_processes", 2},
                           {"mixed_precision", "bf16"},
                           {"deepspeed_config", {{"zero_stage", 2}}}};
  CHECK(has(ways_out(tiny(R"("precision": "bf16", "lora": {"target_modules": ["q_proj"]},
    "quantization": {"load_in_4bit": true})",
                          {{"accelerate_config", accelerate}})),
            "Switch to DDP"));
}

TEST_CASE("A value that is wrong in itself has no way out", "[job]") {
  const json job = json::parse(R"({"model": {"preset": "llama-2-7b"}, "data": {"micro_batch_size": 0}})");
  CHECK(ways_out(job).empty());
  CHECK_FALSE(json::parse(estimate_json("{"))["error"].contains("fixes"));
}

}  // namespace oometer
