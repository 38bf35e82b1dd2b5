#include "job/settings/choices.h"
#include "job/settings/sections.h"

namespace oometer::settings {

namespace {

constexpr Condition kIsDeepspeed{.setting = "/parallel/strategy", .is = "deepspeed"};
constexpr Condition kIsFsdp1{.setting = "/parallel/strategy", .is = "fsdp1"};
constexpr Condition kIsFsdp2{.setting = "/parallel/strategy", .is = "fsdp2"};
constexpr Condition kIsNotMixed{.setting = "/parallel/fsdp/mp", .is = "false"};
constexpr Range kGpus{1, 1 << 16};

constexpr Remedy kBucketViews[] = {
    {"true", Price::nothing, 1, "Gradients as views of DDP's buckets",
     "no cost: gradient_as_bucket_view of DistributedDataParallel"},
};
constexpr Remedy kResharding[] = {
    {"true", Price::time, 1, "Reshard after forward", "slower: parameters are gathered again for backward"},
};
constexpr Remedy kSharding[] = {
    {"\"SHARD_GRAD_OP\"", Price::time, 1, "SHARD_GRAD_OP", "slower: parameters are gathered each step"},
    {"\"FULL_SHARD\"", Price::time, 2, "FULL_SHARD", "slower: parameters are gathered again for backward"},
};
constexpr Remedy kFsdpOffload[] = {
    {"true", Price::time, 8, "FSDP's shards in host memory",
     "much slower: the optimizer runs on the CPU; parameters and gradients are copied each step"},
};

constexpr Setting kParallelRows[] = {
    {.key = "strategy",
     .takes = one_of<kStrategies, &ParallelConfig::strategy>(),
     .words = "How the GPUs share work and memory",
     .option = "--strategy",
     .label = "Parallelism",
     .link = "parallel",
     .applies = {kTrains}},
    {.key = "data",
     .takes = in<&ParallelConfig::data>(kGpus),
     .words = "Replicas: GPUs that each have samples of their own; with inference each holds the whole model",
     .unit = "GPUs",
     .option = "--data-parallel",
     .label = "GPUs",
     .link = "gpus"},
    {.key = "rank",
     .takes = any(kInteger | kText | kNull),
     .words = "The rank that the report is of; null: the one that probably needs most; all: the worst, with a row for "
              "each that can differ in `ranks`",
     .option = "--rank",
     .otherwise = "null",
     .schema = R"({"anyOf": [{"type": "integer", "minimum": 0}, {"enum": ["all"]}, {"type": "null"}]})"},
    {.key = "zero_stage",
     .takes = any(kInteger | kNull, {0, 3}),
     .words = "ZeRO stage of DeepSpeed with the options of LLaVA's zero2.json or zero3.json; 0 is not supported yet",
     .option = "--zero-stage",
     .link = "parallel",
     .applies = {kTrains, kIsDeepspeed},
     .otherwise = "null"},
    {.key = "accelerate_config",
     .takes = any(kObject | kNull),
     .words =
         "What `accelerate config` writes, as JSON: it takes the place of this object's other keys but rank and data, "
         "which may say the same; the content of a deepspeed_config_file stands in place of its name",
     .label = "Own configuration",
     .link = "runfile",
     .applies = {kTrains},
     .otherwise = "null"},
    {.key = "ds_config",
     .takes = any(kObject | kNull),
     .words = "A DeepSpeed configuration; its \"auto\" is resolved as transformers does",
     .link = "runfile",
     .applies = {kTrains, kIsDeepspeed},
     .otherwise = "null"},
    {.key = "ddp",
     .takes = any(kNull) | ddp_section,
     .words = "Options of torch.nn.parallel.DistributedDataParallel",
     .option = "--ddp",
     .applies = {kTrains, {.setting = "/parallel/strategy", .is = "ddp"}}},
    {.key = "fsdp",
     .takes = any(kNull) | fsdp_section,
     .words = "Options of FSDP1's FullyShardedDataParallel or FSDP2's fully_shard",
     .option = "--fsdp",
     .applies = {kTrains, {.setting = "/parallel/strategy", .is = "fsdp1 fsdp2"}}},
};

constexpr Setting kDdpRows[] = {
    {.key = "bucket_cap_mb",
     .takes = in<&DdpConfig::bucket_cap_mb>(Range{1, 1 << 20}),
     .words = "Size of a gradient bucket; null: a first bucket of 1 MiB, then 25 MiB",
     .unit = "MiB",
     .label = "DDP bucket",
     .link = "ddpcap"},
    {.key = "broadcast_buffers",
     .takes = in<&DdpConfig::broadcast_buffers>(),
     .words = "The model's buffers are broadcast before each forward",
     .label = "DDP broadcasts buffers",
     .link = "ddpbuffers"},
    {.key = "find_unused_parameters",
     .takes = in<&DdpConfig::find_unused_parameters>(),
     .words = "Looks for parameters that a step does not use, for which every output is cloned, logits too",
     .label = "DDP finds unused parameters",
     .link = "ddpgraph"},
    {.key = "gradient_as_bucket_view",
     .takes = in<&DdpConfig::gradient_as_bucket_view>(),
     .words = "Gradients are views of the buckets, not copies beside them",
     .label = "DDP gradients are views",
     .link = "ddpviews",
     .remedies = kBucketViews},
    {.key = "static_graph",
     .takes = in<&DdpConfig::static_graph>(),
     .words = "Every step uses the same parameters in the same way: the first step alone clones the outputs",
     .label = "DDP static graph",
     .link = "ddpgraph"},
    {.key = "lazy_bucket_allocation",
     .takes = in<&DdpConfig::lazy_bucket_allocation>(),
     .words = "Buckets exist only while a backward runs (torch 2.15)",
     .label = "DDP lazy buckets",
     .link = "ddpviews"},
    {.key = "batched_grad_copy",
     .takes = in<&DdpConfig::batched_grad_copy>(),
     .words =
         "Gradients are copied a bucket at a time; where they are views of buckets, they exist beside them until then",
     .label = "DDP copies by bucket",
     .link = "ddpcopy"},
    {.key = "skip_all_reduce_unused_params",
     .takes = any(kBoolean),
     .words = "Unused parameters are not reduced; changes no memory",
     .label = "DDP skips unused",
     .link = "ddpskip",
     .otherwise = "false"},
};

constexpr Setting kFsdpRows[] = {
    {.key = "mp",
     .takes = any(kBoolean),
     .words = "Mixed precision over fp32 weights: param_dtype bf16, reduce_dtype fp32 and, in FSDP1, buffer_dtype bf16",
     .label = "FSDP mixed precision",
     .link = "fsdpmp",
     .otherwise = "false"},
    {.key = "param_dtype",
     .takes = one_of<kFloats>() | kNull,
     .words = "Data type of gathered parameters, which computation has too; null: that of the weights",
     .label = "FSDP parameter type",
     .link = "fsdpparam",
     .applies = {kIsNotMixed},
     .otherwise = "null"},
    {.key = "reduce_dtype",
     .takes = one_of<kFloats>() | kNull,
     .words = "Data type in which gradients are reduced over GPUs; null: that of the gradients",
     .label = "FSDP reduction type",
     .link = "fsdpreduce",
     .applies = {kIsNotMixed},
     .otherwise = "null"},
    {.key = "buffer_dtype",
     .takes = one_of<kFloats>() | kNull,
     .words = "Data type of buffers, such as rotary tables; null: their own",
     .label = "FSDP1 buffer type",
     .link = "fsdpbuffer",
     .applies = {kIsFsdp1, kIsNotMixed},
     .otherwise = "null"},
    {.key = "reshard_after_forward",
     .takes = in<&FsdpConfig::reshard_after_forward>(),
     .words = "Gathered parameters are freed after forward and gathered again for backward",
     .label = "FSDP2 reshards after forward",
     .link = "fsdpreshard",
     .applies = {kIsFsdp2},
     .remedies = kResharding},
    {.key = "preparer",
     .takes = one_of<kPreparers, &FsdpConfig::preparer>(),
     .words = "Whose fsdp2_prepare_model a trainer calls: what is a unit, and in which type",
     .applies = {kIsFsdp2}},
    {.key = "sharding",
     .takes = one_of<kShardings, &FsdpConfig::sharding>(),
     .words = "sharding_strategy of FSDP1: what becomes of gathered parameters until backward",
     .label = "FSDP1 sharding",
     .link = "fsdpshard",
     .applies = {kIsFsdp1},
     .remedies = kSharding},
    {.key = "use_orig_params",
     .takes = in<&FsdpConfig::use_orig_params>(),
     .words =
         "The optimizer sees parts of the original parameters, as accelerate has it, not one flat parameter per block",
     .label = "FSDP1 original parameters",
     .link = "fsdpparams",
     .link_values = "flat original",
     .applies = {kIsFsdp1}},
    {.key = "backward_prefetch",
     .takes = one_of<kPrefetches, &FsdpConfig::backward_prefetch>() | kNull,
     .words = "When the next block of backward is gathered; null is NO_PREFETCH",
     .label = "FSDP1 prefetch",
     .link = "fsdpprefetch",
     .applies = {kIsFsdp1}},
    {.key = "forward_prefetch",
     .takes = in<&FsdpConfig::forward_prefetch>(),
     .words = "The next block is gathered before this one runs",
     .link = "fsdpprefetch",
     .applies = {kIsFsdp1}},
    {.key = "limit_all_gathers",
     .takes = in<&FsdpConfig::limit_all_gathers>(),
     .words = "Waits before a third block is gathered; takes the same memory either way",
     .label = "FSDP1 limits gathers",
     .link = "fsdplimit",
     .applies = {kIsFsdp1}},
    {.key = "sync_module_states",
     .takes = in<&FsdpConfig::sync_module_states>(),
     .words = "The weights of rank 0 are sent to all ranks when the model is wrapped",
     .label = "FSDP1 sends weights",
     .link = "fsdpsync",
     .applies = {kIsFsdp1}},
    {.key = "keep_low_precision_grads",
     .takes = any(kBoolean),
     .words = "Must be false: the optimizers of torch refuse such gradients",
     .applies = {kIsFsdp1},
     .otherwise = "false"},
    {.key = "wrap",
     .takes = in<&FsdpConfig::wrap>(),
     .words = "Classes of the modules that are gathered one by one; absent: the blocks that accelerate wraps",
     .label = "FSDP units",
     .link = "fsdpwrap"},
    {.key = "cpu_offload",
     .takes = in<&FsdpConfig::cpu_offload>(),
     .words = "Shards, gradients and optimizer states are in host memory",
     .label = "FSDP offload",
     .link = "fsdpoffload",
     .link_values = "off cpu",
     .remedies = kFsdpOffload},
};

}  // namespace

constexpr SectionOf<ParallelConfig> parallel_section{{"/parallel", fields<ParallelConfig, kParallelRows>}};
constexpr SectionOf<DdpConfig> ddp_section{{"/parallel/ddp", fields<DdpConfig, kDdpRows>, remedies<kDdpRows>}};
constexpr SectionOf<FsdpConfig> fsdp_section{{"/parallel/fsdp", fields<FsdpConfig, kFsdpRows>, remedies<kFsdpRows>}};

constexpr SectionWords parallel_words{parallel_section, "How the job is spread over GPUs", kParallelRows,
                                      defaults_of<ParallelConfig>};
constexpr SectionWords ddp_words{ddp_section, "Options of torch.nn.parallel.DistributedDataParallel", kDdpRows,
                                 defaults_of<DdpConfig>};
constexpr SectionWords fsdp_words{
    fsdp_section,
    "Options of FullyShardedDataParallel (FSDP1) or fully_shard (FSDP2), around each block "
    "and the model",
    kFsdpRows, defaults_of<FsdpConfig>};

}  // namespace oometer::settings
