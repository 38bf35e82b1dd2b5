#include "nn/block_stack.h"

#include <catch2/catch_test_macros.hpp>
#include <nlohmann/json.hpp>

#include "job/parse.h"
#include "job/simulate.h"
#include "trace/same_log.h"

namespace oometer {
namespace {

using nlohmann::json;

json llava_job(int vision_layers, int text_layers) {
  json job = json::parse(R"({
    "version": 1,
    "model": {"config": {
      "model_type": "llava", "image_token_index": 90,
      "vision_config": {"model_type": "clip_vision_model", "hidden_size": 64, "intermediate_size": 128,
                        "num_attention_heads": 4, "image_size": 56, "patch_size": 14},
      "text_config": {"model_type": "llama", "hidden_size": 128, "intermediate_size": 256, "num_attention_heads": 4,
                      "num_key_value_heads": 2, "vocab_size": 100}}},
    "data": {"micro_batch_size": 2, "sequence_length": 64},
    "training": {"stage": "full"}
  })");
  job["model"]["config"]["vision_config"]["num_hidden_layers"] = vision_layers;
  job["model"]["config"]["text_config"]["num_hidden_layers"] = text_layers;
  return job;
}

/// The log of a run that repeats is that of one that executes everything.
void check(const json& description) {
  INFO(description.dump());
  const Result<Job> job = parse_job(description.dump());
  REQUIRE(job);
  const Behaviours behaviours = resolve_behaviours(job->runtime);
  CHECK(difference(simulate(*job, behaviours).log, simulate(*job, behaviours, false).log) == "");
}

TEST_CASE("Stacks of any depth are written as they would be executed", "[nn]") {
  for (const int layers : {1, 5, 6, 7, 8, 9, 20}) check(llava_job(layers, layers));
}

TEST_CASE("Blocks that differ from their neighbours are executed", "[nn]") {
  json frozen = llava_job(9, 12);
  frozen["training"]["stage"] = "custom";
  for (const char* component : {"language_model.layers.1", "language_model.layers.5", "language_model.layers.11",
                                "layers.5.mlp", "layers.4.self_attn.q_proj.weight", "vision_tower.encoder.layers.3"}) {
    frozen["training"]["freeze"] = {component};
    check(frozen);
  }
  frozen["training"].erase("freeze");
  frozen["training"]["train_only"] = {"language_model.layers.6"};
  check(frozen);
  json some_checkpointed = llava_job(9, 12);
  for (const int every : {2, 3, 5, 11}) {
    some_checkpointed["training"]["activation_checkpointing"] = {{"mode", "non-reentrant"}, {"every", every}};
    check(some_checkpointed);
  }
  some_checkpointed["training"]["activation_checkpointing"] = {
      {"segments", {{"language_model.layers", {{0, 3}, 5, {6, 12}}}, {"encoder.layers", {{2, 9}}}}}};
  check(some_checkpointed);
}

TEST_CASE("DeepSpeed is told of every gradient between what is written", "[nn]") {
  json job = llava_job(7, 12);
  job["parallel"] = {{"strategy", "deepspeed"}, {"data", 4}};
  json& zero = job["parallel"]["ds_config"]["zero_optimization"];
  for (const int stage : {1, 2}) {
    for (const std::int64_t bucket : {20'000, 150'000, 1'000'000, 500'000'000}) {
      for (const bool contiguous : {true, false}) {
        for (const bool overlap : {true, false}) {
          zero = {{"stage", stage},
                  {"reduce_bucket_size", bucket},
                  {"contiguous_gradients", contiguous},
                  {"overlap_comm", overlap}};
          check(job);
        }
      }
    }
  }
  for (const int stage : {1, 2}) {
    zero = {{"stage", stage}};
    for (const char* version : {"0.12.6", "0.14.4", "0.19.8"}) {
      job["runtime"] = {{"deepspeed", version}};
      for (const char* trained : {"pretrain", "finetune", "full"}) {
        for (const char* mode : {"none", "non-reentrant", "reentrant"}) {
          for (const int steps : {1, 3}) {
            job["training"] = {
                {"stage", trained}, {"activation_checkpointing", mode}, {"gradient_accumulation_steps", steps}};
            check(job);
          }
        }
      }
    }
  }
}

TEST_CASE("Hidden states that are captured on the way stay", "[nn]") {
  json job = llava_job(20, 8);
  for (const json& layers : {json(-1), json(0), json(-2), json(1), json(10), json({3, 10, -2}), json({0, 9, 20})}) {
    job["model"]["config"]["vision_feature_layer"] = layers;
    for (const char* stage : {"pretrain", "finetune", "full"}) {
      job["training"]["stage"] = stage;
      check(job);
    }
  }
}

}  // namespace
}  // namespace oometer
