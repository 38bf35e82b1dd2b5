#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "trace/dtype.h"

namespace oometer {

enum class Strategy : std::uint8_t { none, ddp, deepspeed, fsdp1, fsdp2 };

/// Where DeepSpeed keeps what it offloads.
enum class OffloadDevice : std::uint8_t { none, cpu, nvme };

/// A DeepSpeed configuration with every "auto" resolved as transformers does (integrations/deepspeed.py,
/// trainer_config_process and trainer_config_finalize, 5.23). Sizes are elements, as DeepSpeed counts them; defaults
/// are those of deepspeed/runtime/zero/config.py, 0.19.8.
struct DeepSpeedConfig {
  std::int64_t zero_stage = 2;
  std::int64_t reduce_bucket_size = 500'000'000;
  std::int64_t allgather_bucket_size = 500'000'000;
  std::int64_t sub_group_size = 1'000'000'000;
  bool overlap_comm = false;  ///< two reduce buckets instead of one
  bool contiguous_gradients = true;
  bool reduce_scatter = true;
  bool round_robin_gradients = false;
  // Stage 3 only.
  std::int64_t prefetch_bucket_size = 50'000'000;
  std::int64_t param_persistence_threshold = 100'000;
  std::int64_t model_persistence_threshold = std::numeric_limits<std::int64_t>::max();
  std::int64_t max_live_parameters = 1'000'000'000;
  std::int64_t max_reuse_distance = 1'000'000'000;
  bool allgather_sequential = false;
  bool memory_efficient_linear = true;
  bool gather_16bit_weights_on_model_save = false;
  OffloadDevice offload_optimizer = OffloadDevice::none;
  OffloadDevice offload_param = OffloadDevice::none;
  bool pins_optimizer = false;  ///< offload_optimizer.pin_memory
  double offload_ratio = 1.0;   ///< offload_optimizer.ratio: of the sub-groups, the others' optimizer is on the device
  bool pins_param = false;      ///< offload_param.pin_memory
  double gradient_clipping = 0.0;  ///< 0: the norm is computed, nothing is clipped
  bool casts_weights = true;       ///< bf16 or fp16 is enabled, or the weights are float32; else they stay as they are
  // What transformers makes of "auto" when it prepares the model that is trained.
  bool prefetch_bucket_is_auto = false;
  bool param_persistence_is_auto = false;

  bool splits_optimizer() const { return offloads_optimizer() && offload_ratio != 1.0; }
  bool offloads_optimizer() const { return offload_optimizer != OffloadDevice::none; }
  /// As trl's prepare_deepspeed gives it to deepspeed.initialize: "auto" is DeepSpeed's own default still
  /// (DeepSpeedConfigModel leaves such a key out), no optimizer is there to be offloaded.
  DeepSpeedConfig of_reference() const {
    DeepSpeedConfig config = *this;
    const DeepSpeedConfig defaults;
    if (prefetch_bucket_is_auto) config.prefetch_bucket_size = defaults.prefetch_bucket_size;
    if (param_persistence_is_auto) config.param_persistence_threshold = defaults.param_persistence_threshold;
    config.offload_optimizer = OffloadDevice::none;
    return config;
  }
  bool operator==(const DeepSpeedConfig&) const = default;
};

/// torch.nn.parallel.DistributedDataParallel's options (nn/parallel/distributed.py, 2.15) that change what it
/// allocates.
struct DdpConfig {
  std::optional<std::int64_t> bucket_cap_mb;  ///< none: a first bucket of 1 MiB, then 25 MiB each
  bool broadcast_buffers = true;
  bool find_unused_parameters = false;
  bool gradient_as_bucket_view = false;
  bool static_graph = false;
  bool lazy_bucket_allocation = false;  ///< buckets only while a backward runs; 2.15
  bool batched_grad_copy = false;       ///< gradients stay where they are until their bucket's are all there

  bool operator==(const DdpConfig&) const = default;
};

/// What FullyShardedDataParallel (FSDP1) or `fully_shard` (FSDP2) is called with. A mixed precision's dtype that is not
/// given is the parameters' own.
struct FsdpConfig {
  enum class Sharding : std::uint8_t { full_shard, shard_grad_op, no_shard };
  enum class BackwardPrefetch : std::uint8_t { none, pre, post };

  std::vector<std::string> wrap;     ///< classes of the modules that are a unit each; the model is the last
  std::optional<DType> param_dtype;  ///< of gathered parameters, so of computation
  std::optional<DType> reduce_dtype;
  bool cpu_offload = false;  ///< shards, gradients and the optimizer live in host memory
  /// Accelerator.prepare (accelerate 1.15) wraps a model in host memory, as under a trainer: what trains becomes
  /// float32 where the precision is mixed. FSDP1 makes a unit of each adapter's modules (peft's fsdp_auto_wrap_policy),
  /// FSDP2 of the embeddings, and of final norm and head.
  bool by_accelerate = false;

  // FSDP2's
  /// Whose fsdp2_prepare_model it is. Axolotl's (0.19, monkeypatch/accelerate/fsdp2.py) leaves weights in their type,
  /// makes a group of each adapter's modules, and has embeddings, final norm and head in the model's own. NeMo
  /// Automodel wraps the model itself, without a trainer.
  enum class Preparer : std::uint8_t { accelerate, axolotl, automodel };
  Preparer preparer = Preparer::accelerate;
  bool is_prepared_by(Preparer one) const { return by_accelerate && preparer == one; }
  bool reshard_after_forward = true;  ///< false: parameters stay gathered until backward
  std::optional<DType> output_dtype;  ///< of what a unit returns

  // FSDP1's, with accelerate's default of use_orig_params
  Sharding sharding = Sharding::full_shard;
  BackwardPrefetch backward_prefetch = BackwardPrefetch::pre;
  std::optional<DType> buffer_dtype;
  bool use_orig_params = true;      ///< the optimizer sees parts of the parameters, not flat ones
  bool forward_prefetch = false;    ///< the next unit is gathered before this one runs
  bool limit_all_gathers = true;    ///< changes when memory is waited for, not what is asked for
  bool sync_module_states = false;  ///< rank 0's states are sent to all

  /// As FSDP1 takes it: one rank has nothing to shard with (_init_core_state, torch/distributed/fsdp/_init_utils.py).
  Sharding sharding_on(std::int64_t ranks) const { return ranks == 1 ? Sharding::no_shard : sharding; }

  bool operator==(const FsdpConfig&) const = default;
};

struct ParallelConfig {
  Strategy strategy = Strategy::none;
  std::int64_t data = 1;             ///< replicas
  std::optional<std::int64_t> rank;  ///< none: the one that is likely to need most
  bool all_ranks = false;            ///< each that can differ is run: the report is the worst one's
  DeepSpeedConfig deepspeed;         ///< read only where the strategy is deepspeed
  DdpConfig ddp;                     ///< read only where it is ddp
  FsdpConfig fsdp;                   ///< read only where it is fsdp1 or fsdp2

  /// The product of the degrees: how many GPUs the job takes.
  std::int64_t world_size() const { return data; }
  /// A GPU holds parts of the parameters only.
  bool shards_parameters() const {
    return strategy == Strategy::fsdp1 || strategy == Strategy::fsdp2 ||
           (strategy == Strategy::deepspeed && deepspeed.zero_stage == 3);
  }

  bool operator==(const ParallelConfig&) const = default;
};

}  // namespace oometer
