#include "job/accelerate.h"

#include "../jobs.h"

/// What `accelerate config` writes means what the same job says in its own keys.
namespace oometer {
namespace {

using nlohmann::json;

json job_with(const json& parallel, const json& training) {
  json job = json::parse(tiny_llama(""));
  job["parallel"] = parallel;
  job["training"] = training;
  return job;
}

json accelerate(const json& config) { return job_with({{"accelerate_config", config}}, json::object()); }

void check_same(const json& config, const json& parallel, const json& training) {
  CAPTURE(config.dump());
  CHECK(job_of(accelerate(config).dump()) == job_of(job_with(parallel, training).dump()));
}

Error error_of(const json& job) {
  CAPTURE(job.dump());
  const Result<Job> result = parse_job(job.dump());
  REQUIRE_FALSE(result);
  return result.error();
}

}  // namespace

TEST_CASE("accelerate's MULTI_GPU is DDP in autocast", "[job]") {
  // As the file is written, with what changes no memory.
  const json config = {{"compute_environment", "LOCAL_MACHINE"},
                       {"debug", false},
                       {"distributed_type", "MULTI_GPU"},
                       {"downcast_bf16", "no"},
                       {"enable_cpu_affinity", false},
                       {"gpu_ids", "all"},
                       {"machine_rank", 0},
                       {"main_training_function", "main"},
                       {"mixed_precision", "bf16"},
                       {"num_machines", 1},
                       {"num_processes", 8},
                       {"rdzv_backend", "static"},
                       {"same_network", true},
                       {"tpu_env", json::array()},
                       {"tpu_use_cluster", false},
                       {"tpu_use_sudo", false},
                       {"use_cpu", false}};
  check_same(config, {{"strategy", "ddp"}, {"data", 8}}, {{"precision", "amp-bf16"}});
  check_same({{"distributed_type", "MULTI_GPU"}}, json::object(), json::object());
  check_same({{"distributed_type", "NO"}, {"mixed_precision", "fp16"}}, json::object(), {{"precision", "amp-fp16"}});
}

TEST_CASE("accelerate's deepspeed_config is the ds_config that its plugin makes", "[job]") {
  json config = {{"distributed_type", "DEEPSPEED"},
                 {"mixed_precision", "bf16"},
                 {"num_processes", 4},
                 {"deepspeed_config",
                  {{"gradient_accumulation_steps", 2},
                   {"gradient_clipping", 1.0},
                   {"offload_optimizer_device", "cpu"},
                   {"offload_param_device", "none"},
                   {"zero3_init_flag", false},
                   {"zero_stage", 2}}}};
  const json zero = {{"stage", 2}, {"offload_optimizer", {{"device", "cpu"}}}, {"offload_param", {{"device", "none"}}}};
  json expected = {{"zero_optimization", zero}, {"gradient_clipping", 1.0}, {"gradient_accumulation_steps", 2}};
  check_same(config, {{"strategy", "deepspeed"}, {"data", 4}, {"ds_config", expected}},
             {{"precision", "bf16"}, {"gradient_accumulation_steps", 2}});
  // The file that it names, given in place of its name.
  expected = {{"zero_optimization", {{"stage", 3}, {"reduce_bucket_size", "auto"}}}};
  config["deepspeed_config"] = {{"deepspeed_config_file", expected}, {"zero3_init_flag", true}};
  check_same(config, {{"strategy", "deepspeed"}, {"data", 4}, {"ds_config", expected}}, {{"precision", "bf16"}});
  config["deepspeed_config"]["deepspeed_config_file"] = "ds_config.json";
  CHECK(error_of(accelerate(config)).pointer == "/parallel/accelerate_config/deepspeed_config/deepspeed_config_file");
}

TEST_CASE("accelerate's fsdp_config is FSDP1's or FSDP2's arguments", "[job]") {
  json config = {{"distributed_type", "FSDP"},
                 {"mixed_precision", "bf16"},
                 {"num_processes", 8},
                 {"fsdp_config",
                  {{"fsdp_auto_wrap_policy", "TRANSFORMER_BASED_WRAP"},
                   {"fsdp_backward_prefetch", "BACKWARD_POST"},
                   {"fsdp_cpu_ram_efficient_loading", true},
                   {"fsdp_forward_prefetch", true},
                   {"fsdp_offload_params", true},
                   {"fsdp_sharding_strategy", "SHARD_GRAD_OP"},
                   {"fsdp_state_dict_type", "SHARDED_STATE_DICT"},
                   {"fsdp_sync_module_states", false},
                   {"fsdp_transformer_layer_cls_to_wrap", "LlamaDecoderLayer, CLIPEncoderLayer"},
                   {"fsdp_use_orig_params", false}}}};
  const json dtypes = {{"param_dtype", "bf16"}, {"reduce_dtype", "bf16"}};
  json fsdp = dtypes;
  fsdp.update({{"buffer_dtype", "bf16"},
               {"backward_prefetch", "BACKWARD_POST"},
               {"forward_prefetch", true},
               {"cpu_offload", true},
               {"sharding", "SHARD_GRAD_OP"},
               {"use_orig_params", false},
               {"wrap", {"LlamaDecoderLayer", "CLIPEncoderLayer"}}});
  check_same(config, {{"strategy", "fsdp1"}, {"data", 8}, {"fsdp", fsdp}}, {{"precision", "amp-bf16"}});
  config["fsdp_config"] = {{"fsdp_reshard_after_forward", "NO_SHARD"}, {"fsdp_auto_wrap_policy", "NO_WRAP"}};
  fsdp = dtypes;
  fsdp.update(
      {{"buffer_dtype", "bf16"}, {"sharding", "NO_SHARD"}, {"wrap", json::array()}, {"sync_module_states", true}});
  check_same(config, {{"strategy", "fsdp1"}, {"data", 8}, {"fsdp", fsdp}}, {{"precision", "amp-bf16"}});
  config["fsdp_config"] = {{"fsdp_version", 2}, {"fsdp_reshard_after_forward", false}};
  fsdp = dtypes;
  fsdp["reshard_after_forward"] = false;
  check_same(config, {{"strategy", "fsdp2"}, {"data", 8}, {"fsdp", fsdp}}, {{"precision", "amp-bf16"}});
  // Whose function makes the units is not the file's to say.
  json job = accelerate(config);
  job["parallel"]["fsdp"] = {{"preparer", "axolotl"}};
  fsdp["preparer"] = "axolotl";
  const json same = {{"strategy", "fsdp2"}, {"data", 8}, {"fsdp", fsdp}};
  CHECK(job_of(job.dump()) == job_of(job_with(same, {{"precision", "amp-bf16"}}).dump()));
  job["parallel"]["fsdp"]["wrap"] = json::array();
  CHECK(error_of(job).pointer == "/parallel/fsdp");
  CHECK(error_of(job_with({{"strategy", "fsdp1"}, {"fsdp", {{"preparer", "axolotl"}}}}, json::object())).pointer ==
        "/parallel/fsdp/preparer");
}

TEST_CASE("what is wrong with an accelerate configuration is said where it stands", "[job]") {
  const auto at = [](const json& config) { return error_of(accelerate(config)).pointer; };
  const std::string here = "/parallel/accelerate_config";
  CHECK(at({{"distributed_type", "MEGATRON_LM"}}) == here + "/distributed_type");
  CHECK(at({{"num_proceses", 8}}) == here + "/num_proceses");
  CHECK(at({{"num_processes", 0}}) == here + "/num_processes");
  CHECK(at({{"mixed_precision", "fp4"}}) == here + "/mixed_precision");
  CHECK(at({{"use_cpu", true}}) == here + "/use_cpu");
  CHECK(at({{"distributed_type", "FSDP"}, {"fsdp_config", {{"fsdp_sharding_strategy", "HYBRID_SHARD"}}}}) ==
        here + "/fsdp_config");
  CHECK(at({{"distributed_type", "FSDP"}, {"fsdp_config", {{"fsdp_ofload_params", true}}}}) ==
        here + "/fsdp_config/fsdp_ofload_params");
  CHECK(at({{"distributed_type", "DEEPSPEED"}, {"deepspeed_config", {{"zero_stage", 0}}}}) ==
        here + "/deepspeed_config");
  CHECK(at(json::array()) == here);
  json job = accelerate({{"distributed_type", "MULTI_GPU"}, {"num_processes", 8}, {"mixed_precision", "bf16"}});
  job["parallel"]["data"] = 4;
  CHECK(error_of(job).pointer == "/parallel/data");
  job["parallel"]["data"] = 8;
  job["training"]["precision"] = "bf16";
  CHECK(error_of(job).pointer == "/training/precision");
  job["training"]["precision"] = "amp-bf16";
  CHECK(parse_job(job.dump()));
  job["parallel"]["dta"] = 8;
  CHECK(error_of(job).pointer == "/parallel/dta");
  job["parallel"].erase("dta");
  job["parallel"]["strategy"] = "ddp";
  CHECK(error_of(job).pointer == "/parallel/strategy");
}

}  // namespace oometer
