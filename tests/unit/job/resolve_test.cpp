#include "job/resolve.h"

#include <nlohmann/json.hpp>

#include "jobs.h"

namespace oometer {
namespace {

using nlohmann::json;

/// The keys of tiny_llama's report under a `parallel`, by pointer.
json resolved(const json& parallel) {
  json job = json::parse(tiny_llama());
  job["parallel"] = parallel;
  const json answer = json::parse(resolve_json(job.dump()));
  INFO(answer);
  REQUIRE(answer.contains("resolved"));
  json out = json::object();
  for (const json& key : answer["resolved"]) out[key.at("pointer").get<std::string>()] = key;
  CHECK(out.size() == answer["resolved"].size());
  return out;
}

}  // namespace

TEST_CASE("Each key of a DeepSpeed configuration has a value, an origin and a meaning", "[job]") {
  const json keys = resolved({{"strategy", "deepspeed"},
                              {"data", 2},
                              {"ds_config",
                               {{"bf16", {{"enabled", "auto"}}},
                                {"steps_per_print", 10},
                                {"autotuning", {{"enabled", true}}},
                                {"compile", {{"deepcompile", true}}},
                                {"train_micro_batch_size_per_gpu", "auto"},
                                {"zero_optimization",
                                 {{"stage", 3},
                                  {"reduce_bucket_size", "auto"},
                                  {"allgather_bucket_size", 1000},
                                  {"stage3_prefetch_bucket_size", "auto"},
                                  {"stage3_max_live_parameters", 1000000}}}}}});
  const std::string zero = "/parallel/ds_config/zero_optimization/";
  const auto is = [&](const std::string& pointer, const json& value, const char* origin, const json& matters) {
    INFO(pointer);
    REQUIRE(keys.contains(pointer));
    CHECK(keys[pointer]["value"] == value);
    CHECK(keys[pointer]["origin"] == origin);
    CHECK(keys[pointer]["matters"] == matters);
    CHECK(keys[pointer]["from"].get<std::string>().empty() == (origin != std::string("auto")));
  };
  is("/parallel/ds_config/bf16/enabled", true, "auto", true);
  is("/parallel/ds_config/train_micro_batch_size_per_gpu", 2, "auto", true);
  is("/parallel/ds_config/steps_per_print", 10, "file", false);
  is("/parallel/ds_config/autotuning/enabled", true, "file", false);
  is("/parallel/ds_config/compile/deepcompile", true, "file", "not modelled");
  is(zero + "stage", 3, "file", true);
  is(zero + "reduce_bucket_size", 64 * 64, "auto", true);
  is(zero + "allgather_bucket_size", 1000, "file", false);
  is(zero + "stage3_prefetch_bucket_size", 64 * 64 * 9 / 10, "auto", true);
  is(zero + "stage3_max_live_parameters", 1000000, "file", true);
  is(zero + "sub_group_size", 1000000000, "default", true);
}

TEST_CASE("Each key of accelerate's file has a value and a meaning, those of a file in it too", "[job]") {
  const json inner = {{"zero_optimization", {{"stage", 2}, {"reduce_bucket_size", "auto"}}}};
  const json keys = resolved({{"accelerate_config",
                               {{"distributed_type", "DEEPSPEED"},
                                {"num_processes", 2},
                                {"machine_rank", 0},
                                {"mixed_precision", "bf16"},
                                {"deepspeed_config", {{"deepspeed_config_file", inner}, {"zero3_init_flag", true}}}}}});
  const std::string place = "/parallel/accelerate_config";
  CHECK(keys[place + "/num_processes"]["matters"] == true);
  CHECK(keys[place + "/machine_rank"]["matters"] == false);
  CHECK(keys[place + "/deepspeed_config/zero3_init_flag"]["matters"] == false);
  const std::string file = place + "/deepspeed_config/deepspeed_config_file/zero_optimization/";
  CHECK(keys[file + "stage"]["origin"] == "file");
  CHECK(keys[file + "reduce_bucket_size"]["value"] == 64 * 64);
  CHECK(keys[file + "reduce_bucket_size"]["origin"] == "auto");
  CHECK(keys[file + "overlap_comm"]["origin"] == "default");
}

TEST_CASE("A job without such a file has nothing to resolve, and a wrong one is an error", "[job]") {
  CHECK(resolved({{"strategy", "ddp"}, {"data", 2}}).empty());
  CHECK(json::parse(resolve_json("{")).contains("error"));
}

}  // namespace oometer
