#include "advice/advice.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "advice/trial.h"
#include "job/timed.h"
#include "jobs.h"

namespace oometer {
namespace {

using nlohmann::json;

Advice advice_of(const json& job) {
  const Result<Advice> advice = advise(job.dump());
  if (!advice) FAIL(advice.error().pointer << ": " << advice.error().message);
  return *advice;
}

/// A tiny model on a device that its run leaves no room on.
json cramped(const std::string& text, std::int64_t usable_bytes) {
  json job = json::parse(text);
  job["gpu"] = {{"usable_bytes", usable_bytes}, {"compute_capability", "9.0"}};
  return job;
}

void check_change(const json& job, const std::string& change, const Trial& trial) {
  INFO(change);
  const std::optional<Trial> again = try_job(patched(job, json::parse(change)));
  REQUIRE(again);
  CHECK(again->total == trial.total);
  CHECK(again->verdict == trial.verdict);
}

const std::string kLong = R"("micro_batch_size": 8, "sequence_length": 256)";
const std::string kEager = R"("precision": "fp32", "attention": "eager", "optimizer": {"implementation": "foreach"})";

}  // namespace

TEST_CASE("the largest micro-batch and sequence fit, and one more does not", "[advice]") {
  for (const std::string& text : {tiny_llama(), tiny_llava()}) {
    const json job = cramped(text, 64 << 20);
    const Advice advice = advice_of(job);
    REQUIRE(advice.largest_micro_batch);
    REQUIRE(advice.longest_sequence);
    const auto fits = [&](const char* key, std::int64_t value) {
      return try_job(patched(job, {{"data", {{key, value}}}}))->fits;
    };
    CHECK(fits("micro_batch_size", *advice.largest_micro_batch));
    CHECK_FALSE(fits("micro_batch_size", *advice.largest_micro_batch + 1));
    CHECK(fits("sequence_length", *advice.longest_sequence));
    CHECK_FALSE(fits("sequence_length", *advice.longest_sequence + 1));
    CHECK_FALSE(advice.fewest_gpus);
  }
}

TEST_CASE("every change gives the peak that it promises, the best first", "[advice]") {
  const std::string ddp = R"(, "parallel": {"strategy": "ddp", "ddp": {"bucket_cap_mb": 1}, "data": 2})";
  for (const std::string& text :
       {tiny_llama(kEager, "", kLong), tiny_llava(kEager, "", kLong), tiny_llama(kEager, ddp, kLong)}) {
    const json job = cramped(text, 48 << 20);
    const Advice advice = advice_of(job);
    const std::optional<Trial> now = try_job(job);
    REQUIRE(now);
    REQUIRE(advice.changes.size() > 3);
    for (std::size_t i = 0; i < advice.changes.size(); ++i) {
      const TriedChange& tried = advice.changes[i];
      check_change(job, tried.change, tried.trial);
      CHECK(tried.saves == now->total - tried.trial.total);
      CHECK_FALSE(tried.costs.empty());
      if (i > 0) CHECK(tried.saves <= advice.changes[i - 1].saves);
    }
  }
}

TEST_CASE("LoRA by LLaVA's recipe leaves a tower alone and trains the projector, whatever they are called",
          "[advice]") {
  const json job = json::parse(R"({"model": {"config": {"model_type": "qwen2_5_vl",
    "text_config": {"hidden_size": 512, "intermediate_size": 2048, "vocab_size": 512, "num_hidden_layers": 4,
      "num_attention_heads": 8, "num_key_value_heads": 8, "rope_parameters": {"mrope_section": [8, 12, 12]}},
    "vision_config": {"depth": 2, "hidden_size": 32, "intermediate_size": 48, "num_heads": 2, "out_hidden_size": 512}}},
    "data": {"sequence_length": 128, "image_size": [140, 112]}, "training": {"stage": "finetune"}})");
  const std::vector<TriedChange> changes = advice_of(job).changes;
  CHECK(std::any_of(changes.begin(), changes.end(), [](const TriedChange& tried) {
    return tried.change.find(R"("also_train":["visual.merger"])") != std::string::npos &&
           tried.change.find("(?!.*visual)") != std::string::npos;
  }));
}

TEST_CASE("the combination fits, and needs each of its changes", "[advice]") {
  const json job = cramped(tiny_llama(kEager, "", kLong), 40 << 20);
  REQUIRE_FALSE(try_job(job)->fits);
  const Advice advice = advice_of(job);
  REQUIRE_FALSE(advice.combinations.empty());
  CHECK(advice.combinations.size() <= 3);
  for (const Combination& combination : advice.combinations) {
    CHECK(combination.trial.fits);
    CHECK_FALSE(combination.parts.empty());
    check_change(job, combination.change, combination.trial);
  }
}

TEST_CASE("nothing combines where the job fits already", "[advice]") {
  const Advice advice = advice_of(json::parse(tiny_llama()));
  CHECK(advice.combinations.empty());
  for (const TriedChange& tried : advice.changes) CHECK(tried.saves > 0);
}

TEST_CASE("advice for a job that fits lists what it does not need", "[advice]") {
  const json job = json::parse(R"({"model": {"preset": "llama-2-7b"}, "data": {"sequence_length": 512},
    "training": {"stage": "finetune", "activation_checkpointing": "non-reentrant"}, "gpu": {"name": "h200"},
    "parallel": {"strategy": "deepspeed", "zero_stage": 3, "data": 8}})");
  const Advice advice = advice_of(job);
  CHECK(advice.combinations.empty());
  std::vector<std::string> labels;
  for (const Spare& spare : advice.beside) {
    labels.push_back(spare.label);
    CHECK(spare.trial.fits);
    check_change(job, spare.change, spare.trial);
  }
  for (const char* label : {"Without activation checkpointing", "ZeRO-2"})
    CHECK(std::find(labels.begin(), labels.end(), label) != labels.end());
  // Which it has not.
  CHECK(std::find(labels.begin(), labels.end(), "Without frozen vision tower") == labels.end());
}

TEST_CASE("the fewest GPUs that hold a sharded job", "[advice]") {
  json job = json::parse(R"({"model": {"preset": "llava-1.5-7b"}, "data": {"micro_batch_size": 1},
    "training": {"stage": "finetune", "activation_checkpointing": "non-reentrant"}, "gpu": {"name": "h100-80gb"},
    "parallel": {"strategy": "deepspeed", "zero_stage": 2, "data": 8}})");
  const Advice advice = advice_of(job);
  REQUIRE(advice.fewest_gpus);
  const auto fits = [&](std::int64_t n) { return try_job(patched(job, {{"parallel", {{"data", n}}}}))->fits; };
  CHECK(fits(*advice.fewest_gpus));
  CHECK((*advice.fewest_gpus == 1 || !fits(*advice.fewest_gpus - 1)));
}

TEST_CASE("what is said to fit does so on every rank", "[advice]") {
  // The rank that is likely to need most takes 35.
  const json job = json::parse(R"({"model": {"preset": "llava-1.5-7b"}, "gpu": {"name": "h100-80gb"},
    "training": {"stage": "finetune", "activation_checkpointing": "non-reentrant"},
    "parallel": {"strategy": "deepspeed", "zero_stage": 2, "data": 8}})");
  const std::optional<std::int64_t> largest = advice_of(job).largest_micro_batch;
  REQUIRE(largest);
  const auto fits = [&](std::int64_t n) {
    return try_job(patched(job, {{"data", {{"micro_batch_size", n}}}, {"parallel", {{"rank", "all"}}}}))->fits;
  };
  CHECK(fits(*largest));
  CHECK_FALSE(fits(*largest + 1));
}

TEST_CASE("a job's own errors are the answer", "[advice]") {
  CHECK(advise_json("{").find(R"({"error":{"code":"not-json")") == 0);
  CHECK(advise(R"({"model": {"preset": "llama-2-7b"}, "data": {"micro_batch_size": 0}})").error().pointer ==
        "/data/micro_batch_size");
}

TEST_CASE("a change says how fast the job is then, where oometer knows", "[advice][time]") {
  json on_a100 = json::parse(tiny_llama(kEager, "", kLong));
  on_a100["gpu"] = {{"name", "a100-80gb"}};
  const Advice advice = advice_of(on_a100);
  REQUIRE(advice.tokens_per_second);
  REQUIRE_FALSE(advice.changes.empty());
  for (const TriedChange& tried : advice.changes) {
    const json report = json::parse(timed_estimate_json(patched(on_a100, json::parse(tried.change)).dump()));
    CHECK(tried.trial.tokens_per_second.has_value() == !report.at("time").is_null());
    if (tried.trial.tokens_per_second)
      CHECK(std::abs(*tried.trial.tokens_per_second - report["time"]["tokens_per_second"].get<double>()) < 0.06);
  }
  CHECK_FALSE(advice_of(cramped(tiny_llama(), 48 << 20)).tokens_per_second);  // of a GPU by its memory
}

TEST_CASE("a model that infers may have its weights in 4 bits", "[advice][quantization]") {
  const json job = json::parse(R"({"model": {"preset": "llama-3-8b"}, "task": "inference", "gpu": {"name": "t4"},
    "training": {"precision": "fp16"}})");
  const Advice advice = advice_of(job);
  REQUIRE_FALSE(advice.combinations.empty());
  CHECK(advice.combinations.front().change.find("load_in_4bit") != std::string::npos);
}

}  // namespace oometer
