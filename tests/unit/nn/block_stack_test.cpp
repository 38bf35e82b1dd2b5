#include "nn/block_stack.h"

#include <catch2/catch_test_macros.hpp>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "../../reference/files.h"
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

TEST_CASE("Written blocks have the weights that autocast's cache keeps", "[nn]") {
  json job = llava_job(9, 12);
  for (const json& precision : {json("amp-bf16"), json{{"weights", "bf16"}, {"autocast", "bf16"}}})
    for (const bool is_lora : {false, true})
      for (const char* mode : {"none", "non-reentrant", "reentrant"}) {
        job["training"] = {{"stage", "full"}, {"precision", precision}, {"activation_checkpointing", mode}};
        if (is_lora) job["training"]["lora"] = {{"rank", 4}, {"target_modules", {"q_proj", "down_proj"}}};
        for (const char* strategy : {"none", "ddp"}) {
          job.erase("parallel");
          if (strategy != std::string_view("none")) job["parallel"] = {{"strategy", strategy}, {"data", 2}};
          check(job);
        }
        job.erase("parallel");
        job["training"]["loop"] = {{"name", "transformers.Trainer"}};
        check(job);
      }
}

TEST_CASE("Blocks that leave something to others are executed", "[nn]") {
  json job = json::parse(R"({
    "version": 1,
    "model": {"config": {"model_type": "llama", "hidden_size": 96, "intermediate_size": 160, "num_hidden_layers": 7,
                         "num_attention_heads": 6, "num_key_value_heads": 2, "vocab_size": 500}},
    "data": {"micro_batch_size": 2, "sequence_length": 75},
    "training": {"precision": "bf16",
                 "peft": {"peft_type": "TINYLORA", "r": 2, "u": 64, "autocast_adapter_dtype": false,
                          "target_modules": ["q_proj", "down_proj"]},
                 "loop": {"name": "transformers.Trainer",
                          "args": {"gradient_checkpointing": true,
                                   "gradient_checkpointing_kwargs": {"use_reentrant": true}}}}
  })");
  check(job);  // the first block has all vectors
  job["model"]["config"]["model_type"] = "olmo2";
  job["training"] = {{"precision", "fp32"}, {"activation_checkpointing", "reentrant"}};
  job["parallel"] = {{"strategy", "fsdp2"}, {"data", 3}, {"rank", 0}, {"fsdp", {{"mp", true}}}};
  check(job);  // each block's own copies of the rotary tables go with the graph
}

TEST_CASE("Blocks that find another pass's weights in autocast's cache are executed", "[nn]") {
  std::ifstream file(kReference / "trainer/vision.jsonl");
  for (std::string line; std::getline(file, line);) {
    json job = json::parse(line);
    if (job["name"] != "deepseek_ocr2_trainer_tiles") continue;  // the towers see the tiles and the whole image
    job = job["job"];
    job["model"]["config"]["vision_config"]["sam_config"]["num_hidden_layers"] = 7;
    job["model"]["config"]["vision_config"]["encoder_config"]["num_hidden_layers"] = 7;
    return check(job);
  }
  FAIL("no such case");
}

/// A tower whose blocks attend within windows but for some.
json qwen_job(int depth, const std::vector<int>& full_attention) {
  json job = json::parse(R"({
    "version": 1,
    "model": {"config": {
      "model_type": "qwen2_5_vl", "image_token_id": 90,
      "vision_config": {"hidden_size": 32, "intermediate_size": 48, "num_heads": 2, "out_hidden_size": 64},
      "text_config": {"model_type": "qwen2_5_vl_text", "hidden_size": 64, "intermediate_size": 96,
                      "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 100,
                      "rope_parameters": {"rope_type": "default", "mrope_section": [2, 3, 3]}}}},
    "data": {"micro_batch_size": 2, "sequence_length": 128, "image_size": [224, 280]},
    "training": {"stage": "full"}
  })");
  json& vision = job["model"]["config"]["vision_config"];
  vision["depth"] = depth;
  vision["fullatt_block_indexes"] = full_attention;
  return job;
}

TEST_CASE("Single blocks that do something else are executed, those between them are written", "[nn]") {
  const std::pair<int, std::vector<int>> towers[] = {
      {32, {7, 15, 23, 31}}, {13, {3, 7, 11}}, {20, {0, 9}},   {20, {1, 18}}, {20, {10, 11, 12}},        {12, {6}},
      {20, {4, 8, 12, 16}},  {16, {5, 9, 14}}, {9, {2, 4, 6}}, {14, {}},      {7, {0, 1, 2, 3, 4, 5, 6}}};
  for (const auto& [depth, full_attention] : towers) {
    json job = qwen_job(depth, full_attention);
    check(job);
    for (const char* mode : {"non-reentrant", "reentrant"}) {
      job["training"]["activation_checkpointing"] = mode;
      check(job);
    }
    job["training"].erase("activation_checkpointing");
    for (const char* attention : {"eager", "sdpa-math", "sdpa-flash", "sdpa-efficient"}) {
      job["training"]["attention"] = attention;
      check(job);
    }
    job["training"].erase("attention");
    for (const char* stage : {"finetune", "pretrain"}) {
      job["training"]["stage"] = stage;
      check(job);
    }
    job["training"]["stage"] = "full";
    job["training"]["gradient_accumulation_steps"] = 3;
    check(job);
    job["training"]["precision"] = "amp-bf16";
    check(job);
    job["training"].erase("precision");
    job["training"]["activation_checkpointing"] = {{"mode", "non-reentrant"}, {"every", 2}};
    check(job);
    job["parallel"] = {{"strategy", "deepspeed"}, {"data", 4}, {"zero_stage", 3}};
    job["training"] = {{"stage", "full"}};
    check(job);
    job["parallel"]["zero_stage"] = 2;
    check(job);
    job["parallel"] = {{"strategy", "fsdp2"}, {"data", 4}};
    check(job);
  }
}

TEST_CASE("Layers with a window and layers without are two kinds of blocks, in whatever order", "[nn]") {
  json job = json::parse(R"({
    "version": 1,
    "model": {"config": {"model_type": "qwen2", "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 13,
                         "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 100,
                         "use_sliding_window": true, "sliding_window": 32}},
    "data": {"micro_batch_size": 2, "sequence_length": 128}
  })");
  for (const int layers : {0, 1, 6, 9, 13}) {
    job["model"]["config"]["max_window_layers"] = layers;
    job["parallel"] = json::object();
    check(job);
    job["training"]["activation_checkpointing"] = "reentrant";
    check(job);
    job["training"] = json::object();
    for (const char* strategy : {"ddp", "fsdp1", "fsdp2"}) {
      job["parallel"] = {{"strategy", strategy}, {"data", 2}};
      check(job);
    }
    job["parallel"] = {{"strategy", "deepspeed"}, {"data", 2}, {"zero_stage", 3}};
    check(job);
  }
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

/// The job as it is, and with each of the training's options.
void check_trainings(json job) {
  check(job);
  const std::pair<const char*, json> changes[] = {
      {"stage", "pretrain"},
      {"stage", "finetune"},
      {"activation_checkpointing", "non-reentrant"},
      {"activation_checkpointing", "reentrant"},
      {"gradient_accumulation_steps", 3},
      {"precision", "amp-bf16"},
      {"precision", "fp32"},
      {"attention", "eager"},
      {"max_grad_norm", 1.0},
      {"lora", {{"rank", 4}, {"alpha", 8}, {"target_modules", "all-linear"}}},
  };
  const json plain = job["training"];
  for (const auto& [key, value] : changes) {
    job["training"] = plain;
    job["training"][key] = value;
    // What the strategy or its library would refuse has no log.
    if (parse_job(job.dump())) check(job);
    job["training"]["activation_checkpointing"] = "non-reentrant";
    if (parse_job(job.dump())) check(job);
  }
}

json text_job(const char* model_type, const char* its_own) {
  json job = json::parse(R"({
    "version": 1,
    "model": {"config": {"hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4, "num_key_value_heads": 2,
                         "head_dim": 16, "vocab_size": 100}},
    "data": {"micro_batch_size": 2, "sequence_length": 48},
    "training": {"stage": "full"}
  })");
  json& config = job["model"]["config"];
  config.update(json::parse(its_own));
  config["model_type"] = model_type;
  return job;
}

/// Not in vain, either: what fails is executed in full.
bool mostly_writes(const json& description) {
  INFO(description.dump());
  const Result<Job> job = parse_job(description.dump());
  REQUIRE(job);
  const Behaviours behaviours = resolve_behaviours(job->runtime);
  const auto works = [&](bool repeats) { return simulate(*job, behaviours, repeats).log.work.works.size(); };
  return works(true) < works(false) * 3 / 4;
}

TEST_CASE("Layers of several kinds are written in their order", "[nn]") {
  const char* const linear =
      R"({"num_hidden_layers": 17, "linear_key_head_dim": 16, "linear_value_head_dim": 16, "linear_num_key_heads": 2,
          "linear_num_value_heads": 4, "moe_intermediate_size": 24, "shared_expert_intermediate_size": 40,
          "num_experts": 6, "num_experts_per_tok": 2,
          "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5,
                              "mrope_section": [2, 1, 1]}})";
  const char* const short_convolution =
      R"({"layer_types": ["conv", "conv", "full_attention", "conv", "full_attention", "conv", "full_attention", "conv",
                          "conv", "full_attention", "conv", "full_attention", "conv", "conv", "full_attention"],
          "num_hidden_layers": 15, "block_multiple_of": 32, "moe_intermediate_size": 24, "num_experts": 6,
          "num_experts_per_tok": 2, "num_dense_layers": 2})";
  const std::pair<const char*, const char*> families[] = {
      {"gemma2", R"({"num_hidden_layers": 14, "sliding_window": 32})"},
      {"gemma3_text", R"({"num_hidden_layers": 32, "sliding_window": 32})"},
      {"gpt_oss",
       R"({"num_hidden_layers": 13, "num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": 32})"},
      {"olmo3", R"({"num_hidden_layers": 19, "sliding_window": 32})"},
      {"cohere2", R"({"num_hidden_layers": 18, "sliding_window": 32})"},
      {"exaone4", R"({"num_hidden_layers": 18, "sliding_window": 32})"},
      {"smollm3", R"({"num_hidden_layers": 18, "pad_token_id": 0})"},
      {"qwen3_5_text", linear},
      {"qwen3_5_moe_text", linear},
      {"qwen3_next", linear},
      {"lfm2", short_convolution},
      {"lfm2_moe", short_convolution},
      {"nemotron_h",
       R"({"layers_block_type": ["linear_attention", "moe", "linear_attention", "moe", "full_attention",
                                 "linear_attention", "moe", "linear_attention", "full_attention", "moe", "mlp",
                                 "linear_attention", "full_attention", "linear_attention", "moe", "mlp", "moe",
                                 "full_attention", "mlp", "linear_attention", "full_attention", "mlp", "mlp", "moe"],
           "ssm_state_size": 16, "mamba_num_heads": 8, "mamba_head_dim": 16, "n_groups": 2, "chunk_size": 16,
           "n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24,
           "moe_shared_expert_intermediate_size": 40})"},
      {"granitemoehybrid",
       R"({"num_hidden_layers": 16, "layer_types": ["mamba", "mamba", "attention", "mamba", "attention", "mamba",
                                                    "mamba", "attention", "mamba", "mamba", "mamba", "attention",
                                                    "attention", "attention", "mamba", "mamba"],
           "shared_intermediate_size": 88, "mamba_n_heads": 8, "mamba_d_state": 16, "mamba_n_groups": 1,
           "mamba_chunk_size": 16, "num_local_experts": 4, "num_experts_per_tok": 2})"},
      {"bamba",
       R"({"num_hidden_layers": 15, "attn_layer_indices": [2, 5, 6, 8, 12], "mamba_n_heads": 8, "mamba_d_state": 16,
           "mamba_n_groups": 1, "mamba_chunk_size": 16})"},
      {"glm4_moe",
       R"({"num_hidden_layers": 12, "moe_intermediate_size": 24, "n_routed_experts": 4, "n_shared_experts": 1,
           "num_experts_per_tok": 2, "first_k_dense_replace": 5})"},
      {"deepseek_v3",
       R"({"num_hidden_layers": 13, "moe_intermediate_size": 24, "n_routed_experts": 8, "n_shared_experts": 1,
           "num_experts_per_tok": 2, "n_group": 2, "topk_group": 1, "num_key_value_heads": 4, "first_k_dense_replace": 6,
           "q_lora_rank": 24, "kv_lora_rank": 16, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 16})"},
  };
  for (const auto& [model_type, its_own] : families) {
    json job = text_job(model_type, its_own);
    for (const char* mode : {"none", "non-reentrant", "reentrant"}) {
      job["training"]["activation_checkpointing"] = mode;
      CHECK(mostly_writes(job));
    }
    job["training"].erase("activation_checkpointing");
    check_trainings(job);
    for (const json& parallel : {json{{"strategy", "ddp"}, {"data", 2}}, json{{"strategy", "fsdp2"}, {"data", 2}},
                                 json{{"strategy", "deepspeed"}, {"data", 2}, {"zero_stage", 2}},
                                 json{{"strategy", "deepspeed"}, {"data", 2}, {"zero_stage", 3}}}) {
      job["parallel"] = parallel;
      for (const char* mode : {"none", "non-reentrant"}) {  // all of a training's options are tried without
        job["training"]["activation_checkpointing"] = mode;
        if (parse_job(job.dump())) check(job);
      }
    }
  }
}

TEST_CASE("ZeRO-3 gathers and lets go between what is written", "[nn]") {
  json job = llava_job(7, 12);
  job["parallel"] = {{"strategy", "deepspeed"}, {"data", 4}};
  json& zero = job["parallel"]["ds_config"]["zero_optimization"];
  zero = {{"stage", 3}};
  check_trainings(job);
  // The blocks of the model have 130,000 parameters and 50,000.
  const std::pair<const char*, json> options[] = {
      {"reduce_bucket_size", 20'000},
      {"reduce_bucket_size", 150'000},
      {"contiguous_gradients", false},
      {"overlap_comm", false},
      {"reduce_scatter", false},
      {"sub_group_size", 100'000},
      {"stage3_prefetch_bucket_size", 0},
      {"stage3_prefetch_bucket_size", 10'000},
      {"stage3_prefetch_bucket_size", 200'000},
      {"stage3_param_persistence_threshold", 0},
      {"stage3_param_persistence_threshold", 10'000},
      {"stage3_max_live_parameters", 50'000},
      {"stage3_max_live_parameters", 400'000},
      {"stage3_max_reuse_distance", 0},
      {"stage3_max_reuse_distance", 100'000},
      {"stage3_max_reuse_distance", 500'000},
      {"memory_efficient_linear", false},
      {"offload_optimizer", {{"device", "cpu"}}},
      {"offload_param", {{"device", "cpu"}}},
  };
  const json plain = zero;
  for (const char* mode : {"none", "non-reentrant", "reentrant"}) {
    job["training"]["activation_checkpointing"] = mode;
    for (const auto& [key, value] : options) {
      zero = plain;
      // Nothing persists but where that is the question: the blocks are small.
      zero["stage3_param_persistence_threshold"] = 100;
      zero[key] = value;
      check(job);
    }
    zero = plain;
    for (const char* version : {"0.12.6", "0.14.4"}) {
      job["runtime"] = {{"deepspeed", version}};
      check(job);
    }
    job.erase("runtime");
    job["parallel"]["data"] = 1;
    check(job);
    job["parallel"]["data"] = 4;
  }
}

TEST_CASE("DDP's buckets fill between what is written", "[nn]") {
  json job = llava_job(7, 12);
  job["parallel"] = {{"strategy", "ddp"}, {"data", 2}};
  json& ddp = job["parallel"]["ddp"];
  const std::pair<const char*, json> options[] = {
      {"bucket_cap_mb", 1},   {"broadcast_buffers", false},      {"find_unused_parameters", true},
      {"static_graph", true}, {"gradient_as_bucket_view", true}, {"lazy_bucket_allocation", true},
  };
  for (const auto& [key, value] : options) {
    ddp = {{key, value}};
    check_trainings(job);
  }
}

TEST_CASE("FSDP2 gathers and reduces between what is written", "[nn]") {
  json job = llava_job(7, 12);
  job["parallel"] = {{"strategy", "fsdp2"}, {"data", 4}};
  json& fsdp = job["parallel"]["fsdp"];
  for (const bool reshards : {true, false}) {
    fsdp = {{"reshard_after_forward", reshards}};
    check_trainings(job);
  }
  fsdp = {{"wrap", {"LlamaDecoderLayer"}}};
  check_trainings(job);
  fsdp = {{"cpu_offload", true}};
  check_trainings(job);
  job["training"]["precision"] = "fp32";
  fsdp = {{"mp", true}};
  check_trainings(job);
  job["parallel"]["data"] = 1;
  check_trainings(job);
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
