#pragma once

#include <nlohmann/json.hpp>
#include <vector>

#include "advice/changes.h"
#include "job/job.h"

/// Changes of how a job is spread over GPUs: they take several keys of `parallel` at once.
namespace oometer {

/// `parallel.accelerate_config` in the job's own keys, in place of it.
void spell_out_parallel(nlohmann::json& job);

/// So many GPUs.
void set_gpus(nlohmann::json& job, std::int64_t gpus);

/// DDP or one GPU in place of what shards: what quantized weights can have.
void stop_sharding(nlohmann::json& job);

/// Adapters whose parameters are sharded have the type of the weights, as DeepSpeed and FSDP1 need.
void fit_adapters_to_sharding(nlohmann::json& job);

/// Ways to shard more than the job does, over however many GPUs.
std::vector<Change> more_sharding(const Job& job);

/// The same, of a job on several GPUs.
Alternatives sharding(const Job& job);

/// A lower stage of ZeRO, no offload, fewer GPUs. The `costs` say what is gained.
std::vector<Change> less_sharding(const Job& job);

/// Every way to spread a training over the job's GPUs, its own first, that keeps what it computes. `label`: "DDP",
/// "ZeRO-2", "" of one GPU.
std::vector<Change> layouts(const Job& job);

/// More GPUs of the same kind.
Alternatives more_gpus(const Job& job);

/// DeepSpeed's offload to host memory.
Alternatives offload(const Job& job);

}  // namespace oometer
