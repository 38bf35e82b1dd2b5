#include "advice/parallel_changes.h"

#include <algorithm>
#include <string>
#include <utility>

#include "job/accelerate.h"

namespace oometer {

using nlohmann::json;

namespace {

json& object_of(json& parent, const char* key) {
  json& object = parent[key];
  if (!object.is_object()) object = json::object();
  return object;
}

json& parallel_of(json& job) {
  spell_out_parallel(job);
  return object_of(job, "parallel");
}

bool is_deepspeed(const json& parallel) { return parallel.value("strategy", json()) == "deepspeed"; }
bool has_ds_config(const json& parallel) {
  const auto found = parallel.find("ds_config");
  return found != parallel.end() && found->is_object();
}

std::int64_t stage_of(const json& parallel) {
  if (const json::json_pointer stage("/ds_config/zero_optimization/stage"); has_ds_config(parallel))
    return parallel.contains(stage) && parallel[stage].is_number_integer() ? parallel[stage].get<std::int64_t>() : 0;
  const auto found = parallel.find("zero_stage");
  return found != parallel.end() && found->is_number_integer() ? found->get<std::int64_t>() : 2;
}

void set_strategy(json& parallel, const char* strategy) {
  if (parallel.value("strategy", json()) == strategy) return;
  for (const char* key : {"ddp", "fsdp", "zero_stage", "ds_config"}) parallel.erase(key);
  parallel["strategy"] = strategy;
}

/// DeepSpeed does not autocast: it has bf16 weights beside float32 ones.
void set_deepspeed(json& job) {
  set_strategy(parallel_of(job), "deepspeed");
  const json::json_pointer precision("/training/precision");
  if (job.contains(precision) && job[precision] == "amp-bf16") job[precision] = "bf16";
}

void set_stage(json& job, std::int64_t stage) {
  set_deepspeed(job);
  json& parallel = parallel_of(job);
  if (has_ds_config(parallel))
    object_of(parallel["ds_config"], "zero_optimization")["stage"] = stage;
  else
    parallel["zero_stage"] = stage;
  fit_adapters_to_sharding(job);
}

void set_fsdp2(json& job) {
  set_strategy(parallel_of(job), "fsdp2");
  fit_adapters_to_sharding(job);
}

/// LLaVA's scripts/zero2.json and zero3.json (v1.2.2), which `zero_stage` alone means.
json llava_config(std::int64_t stage) {
  json zero = {{"stage", stage},
               {"overlap_comm", true},
               {"contiguous_gradients", true},
               {"sub_group_size", 1'000'000'000},
               {"reduce_bucket_size", "auto"}};
  if (stage == 3) {
    zero["stage3_prefetch_bucket_size"] = "auto";
    zero["stage3_param_persistence_threshold"] = "auto";
    zero["stage3_gather_16bit_weights_on_model_save"] = true;
  }
  return {{"fp16", {{"enabled", "auto"}}},
          {"bf16", {{"enabled", "auto"}}},
          {"train_micro_batch_size_per_gpu", "auto"},
          {"train_batch_size", "auto"},
          {"gradient_accumulation_steps", "auto"},
          {"zero_optimization", std::move(zero)}};
}

void set_offload(json& job, bool parameters) {
  set_deepspeed(job);
  json& parallel = parallel_of(job);
  if (!has_ds_config(parallel)) {
    const std::int64_t stage = stage_of(parallel);
    parallel.erase("zero_stage");
    parallel["ds_config"] = llava_config(parameters ? 3 : stage);
  }
  json& zero = object_of(parallel["ds_config"], "zero_optimization");
  object_of(zero, "offload_optimizer")["device"] = "cpu";
  if (parameters) {
    zero["stage"] = 3;
    object_of(zero, "offload_param")["device"] = "cpu";
    fit_adapters_to_sharding(job);
  }
}

/// What it costs to leave autocast for DeepSpeed.
Price price_of_deepspeed(const Job& job) {
  return job.training.precision == Precision::amp_bf16 ? Price::numerics : Price::time;
}
std::string and_of_deepspeed(const Job& job) {
  return job.training.precision == Precision::amp_bf16
             ? "; precision: DeepSpeed keeps bf16 weights beside float32 ones instead of autocast"
             : "";
}

std::string layout_of(const ParallelConfig& parallel) {
  switch (parallel.strategy) {
    case Strategy::none:
      return "";
    case Strategy::ddp:
      return "DDP";
    case Strategy::deepspeed:
      return "ZeRO-" + std::to_string(parallel.deepspeed.zero_stage);
    case Strategy::fsdp1:
      return "FSDP1";
    case Strategy::fsdp2:
      return "FSDP2";
  }
  return "";
}

std::string gpus_text(std::int64_t gpus) { return std::to_string(gpus) + " GPUs"; }

}  // namespace

void spell_out_parallel(json& job) {
  const auto parallel = job.find("parallel");
  if (parallel == job.end() || !parallel->is_object() || !parallel->contains("accelerate_config")) return;
  if ((*parallel)["accelerate_config"].is_null())
    parallel->erase("accelerate_config");
  else
    (void)spell_out_accelerate(job);  // the job was read before: there is no error
}

void set_gpus(json& job, std::int64_t gpus) {
  json& parallel = parallel_of(job);
  parallel["data"] = gpus;
  if (has_ds_config(parallel) && parallel["ds_config"].contains("train_batch_size"))
    parallel["ds_config"]["train_batch_size"] = "auto";
  if (const auto gpu = job.find("gpu"); gpu != job.end() && gpu->is_object()) gpu->erase("count");
}

void stop_sharding(json& job) {
  json& parallel = parallel_of(job);
  const json gpus = parallel.value("data", json(1));
  set_strategy(parallel, gpus == 1 ? "none" : "ddp");
}

void fit_adapters_to_sharding(json& job) {
  const auto training = job.find("training");
  if (training == job.end() || !training->is_object()) return;
  const json& parallel = parallel_of(job);
  const std::string strategy = parallel.value("strategy", "none");
  if (strategy != "fsdp1" && strategy != "fsdp2" && !(is_deepspeed(parallel) && stage_of(parallel) == 3)) return;
  for (const char* adapters : {"lora", "ia3"})
    if (const auto found = training->find(adapters); found != training->end() && found->is_object())
      (*found)["autocast_adapter_dtype"] = false;
}

std::vector<Change> more_sharding(const Job& job) {
  std::vector<Change> changes;
  const ParallelConfig& now = job.parallel;
  if (job.task != Task::train || now.strategy == Strategy::fsdp1 || now.strategy == Strategy::fsdp2) return changes;
  const bool deepspeed = now.strategy == Strategy::deepspeed;
  const std::int64_t stage = deepspeed ? now.deepspeed.zero_stage : 0;
  if (!deepspeed && !job.model.config.traits().can(Feature::deepspeed)) {
    changes.push_back(
        {"FSDP2", "slower: parameters are gathered for each block, forward and backward", Price::time, 2, set_fsdp2});
    return changes;
  }
  if (stage < 2)
    changes.push_back({"ZeRO-2",
                       (deepspeed ? "about the same communication"
                                  : "setup: DeepSpeed instead of DDP; about the same communication") +
                           and_of_deepspeed(job),
                       price_of_deepspeed(job), 1, [](json& document) { set_stage(document, 2); }});
  if (stage < 3)
    changes.push_back({"ZeRO-3",
                       "slower: parameters are gathered for each layer, forward and backward" + and_of_deepspeed(job),
                       price_of_deepspeed(job), stage == 2 ? 1 : 2, [](json& document) { set_stage(document, 3); }});
  return changes;
}

Alternatives sharding(const Job& job) {
  if (job.parallel.world_size() == 1) return {};
  return {more_sharding(job)};
}

std::vector<Change> layouts(const Job& job) {
  std::vector<Change> ways;
  const std::string own = layout_of(job.parallel);
  ways.push_back({own, "", Price::nothing, 1, [](json&) {}});
  if (job.parallel.world_size() == 1) return ways;
  const auto add = [&](std::string label, std::function<void(json&)> make) {
    if (label != own) ways.push_back({std::move(label), "", Price::time, 1, std::move(make)});
  };
  add("DDP", stop_sharding);
  if (price_of_deepspeed(job) != Price::numerics)
    for (const std::int64_t stage : {1, 2, 3})
      add("ZeRO-" + std::to_string(stage), [stage](json& document) { set_stage(document, stage); });
  add("FSDP2", set_fsdp2);
  return ways;
}

Alternatives more_gpus(const Job& job) {
  const ParallelConfig& now = job.parallel;
  const bool shards = now.strategy != Strategy::none && now.strategy != Strategy::ddp;
  // One that shards as well takes the place of other sharding, and ZeRO-2 over 16 GPUs is no less than ZeRO-3 over 8.
  Alternatives choice{{}, Tell::enough, shards};
  if (job.task != Task::train) return choice;
  const bool has_deepspeed = job.model.config.traits().can(Feature::deepspeed);
  int weight = 0;
  std::int64_t gpus = 1;
  while (gpus <= now.data) gpus *= 2;
  for (; gpus <= std::max<std::int64_t>(8, 4 * now.data); gpus *= 2) {
    weight += 2;
    const std::string costs = "more communication; larger global batch" + and_of_deepspeed(job);
    if (shards) {
      choice.changes.push_back(
          {gpus_text(gpus), costs, Price::hardware, weight, [gpus](json& document) { set_gpus(document, gpus); }});
      continue;
    }
    for (const std::int64_t stage : {2, 3}) {
      if (!has_deepspeed && stage == 2) continue;
      const std::string how = has_deepspeed ? "ZeRO-" + std::to_string(stage) : "FSDP2";
      choice.changes.push_back({how + " over " + gpus_text(gpus), costs, Price::hardware,
                                stage == 2 ? weight - 1 : weight, [gpus, stage, has_deepspeed](json& document) {
                                  set_gpus(document, gpus);
                                  has_deepspeed ? set_stage(document, stage) : set_fsdp2(document);
                                }});
    }
  }
  return choice;
}

Alternatives offload(const Job& job) {
  Alternatives choice;
  const ParallelConfig& now = job.parallel;
  if (job.task != Task::train || now.strategy == Strategy::fsdp1 || now.strategy == Strategy::fsdp2) return choice;
  const bool deepspeed = now.strategy == Strategy::deepspeed;
  const std::string with = deepspeed ? "" : ", with DeepSpeed";
  if (!deepspeed || !now.deepspeed.offloads_optimizer())
    choice.changes.push_back(
        {"Optimizer in host memory" + with,
         "slower: the optimizer's step runs on the CPU; gradients and weights are copied each step" +
             and_of_deepspeed(job),
         price_of_deepspeed(job), 5, [](json& document) { set_offload(document, false); }});
  if (!deepspeed || now.deepspeed.offload_param == OffloadDevice::none)
    choice.changes.push_back({"Optimizer and parameters in host memory" + with +
                                  (deepspeed && now.deepspeed.zero_stage == 3 ? "" : " (ZeRO-3)"),
                              "much slower: parameters are copied for each layer, too" + and_of_deepspeed(job),
                              price_of_deepspeed(job), 8, [](json& document) { set_offload(document, true); }});
  return choice;
}

std::vector<Change> less_sharding(const Job& job) {
  std::vector<Change> changes;
  const ParallelConfig& now = job.parallel;
  if (job.task != Task::train || now.strategy != Strategy::deepspeed) return changes;
  const DeepSpeedConfig& config = now.deepspeed;
  if (config.zero_stage == 3 && config.offload_param == OffloadDevice::none)
    changes.push_back({"ZeRO-2", "faster: parameters are not gathered", Price::time, 1,
                       [](json& document) { set_stage(document, 2); }});
  if (config.offloads_optimizer())
    changes.push_back({"Without offload to host memory", "faster: the optimizer's step runs on the GPU", Price::time, 1,
                       [](json& document) {
                         json& zero = object_of(object_of(parallel_of(document), "ds_config"), "zero_optimization");
                         zero.erase("offload_optimizer");
                         zero.erase("offload_param");
                       }});
  for (std::int64_t gpus = 1; gpus < now.data; gpus *= 2)
    changes.push_back({gpus == 1 ? "1 GPU" : gpus_text(gpus), "fewer GPUs", Price::hardware, 1,
                       [gpus](json& document) { set_gpus(document, gpus); }});
  return changes;
}

}  // namespace oometer
