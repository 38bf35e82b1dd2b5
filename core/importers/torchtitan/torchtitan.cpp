#include "importers/torchtitan/torchtitan.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <string_view>

#include "config/reader.h"
#include "importers/parallel.h"

namespace oometer::importers {

using nlohmann::json;

namespace {

constexpr const char* kTitanTraining = "config/configs.py: TrainingConfig";
constexpr const char* kTitanParallelism = "config/configs.py: ParallelismConfig";

constexpr Key kTitanKeys[] = {
    {"module", "", "", ""},
    {"config", "", "", ""},
    {"training.local_batch_size", "", "models/*/config_registry.py", ""},
    {"training.global_batch_size", "-1", kTitanTraining, ""},
    {"training.seq_len", "", "models/*/config_registry.py", ""},
    {"training.max_norm", "1.0", kTitanTraining, "/training/max_grad_norm"},
    {"training.dtype", "\"float32\"", kTitanTraining, ""},
    {"training.mixed_precision_param", "\"bfloat16\"", kTitanTraining, ""},
    {"training.mixed_precision_reduce", "\"float32\"", kTitanTraining, ""},
    {"training.enable_cpu_offload", "false", kTitanTraining, ""},
    {"training.disable_cuda_graphs", "false", kTitanTraining, ""},
    {"parallelism.data_parallel_replicate_degree", "1", kTitanParallelism, ""},
    {"parallelism.data_parallel_shard_degree", "-1", kTitanParallelism, ""},
    {"parallelism.fsdp_reshard_after_forward", "\"default\"", kTitanParallelism, ""},
    {"parallelism.tensor_parallel_degree", "1", kTitanParallelism, ""},
    {"parallelism.pipeline_parallel_degree", "1", kTitanParallelism, ""},
    {"parallelism.context_parallel_degree", "1", kTitanParallelism, ""},
    {"activation_checkpoint", "", "models/*/config_registry.py", ""},
    {"optimizer.implementation", "\"fused\"", "components/optimizer/optimizer.py: OptimizersContainer.Config", ""},
    {"compile.enable", "false", "config/configs.py: CompileConfig", ""},
    {"loss.num_chunks", "8", "components/loss.py: ChunkedLossWrapper.Config", ""},
};

constexpr Gap kTitanGaps[] = {
    {"parallelism.enable_fsdp_symm_mem", "", Effect::either, "symmetric memory of FSDP's collectives"},
    {"compile.components", "", Effect::either, "what is compiled"},
    {"compile.enable_async_tensor_parallel", "", Effect::either, "communication of tensor parallelism in parts"},
    {"override.imports", "", Effect::either, "parts of the model that are replaced"},
    {"validator.enable", "", Effect::either, "an evaluation"},
    {"debug.deterministic", "", Effect::either, "other kernels"},
    {"profiler.enable_memory_snapshot", "", Effect::either, "a profiler of memory"},
    {"optimizer.param_groups", "", Effect::either, "optimizers of other parameters"},
    {"optimizer.optimizer_factory_kwargs_by_name", "", Effect::either, "arguments of the optimizer"},
    {"activation_checkpoint.preserve_rng_state", "true", Effect::either, "what a checkpoint keeps of dropout"},
    {"activation_checkpoint.force_recompute_mm_shapes_by_fqns", "", Effect::less, "more products are computed again"},
    {"activation_checkpoint.memory_budget", "", Effect::either, "how much the compiler computes again"},
    {"debug.batch_invariant", "", Effect::either, "other kernels"},
    {"debug.detect_anomaly", "", Effect::more, "a trace of each operator"},
};

/// Keys that change no memory: what is read, logged and saved, and when.
bool is_titan_harmless(std::string_view key) {
  for (const char* section : {"dataloader.", "metrics.", "lr_scheduler.", "checkpoint.", "profiler.", "comm.",
                              "tokenizer.", "debug.", "validator."})
    if (key.starts_with(section)) return true;
  return is_word_of(key,
                    "hf_assets_path dump_folder training.steps training.gc_freq training.gc_debug compile.backend "
                    "parallelism.spmd_backend parallelism.enable_sequence_parallel parallelism.expert_parallel_degree "
                    "parallelism.context_parallel_load_balancer parallelism.pipeline_parallel_schedule "
                    "parallelism.context_parallel_ptrr_mask_key parallelism.module_fqns_per_model_part "
                    "parallelism.pipeline_parallel_first_stage_less_layers "
                    "parallelism.pipeline_parallel_last_stage_less_layers "
                    "parallelism.pipeline_parallel_layers_per_stage parallelism.pipeline_parallel_schedule_csv "
                    "parallelism.pipeline_parallel_microbatch_size loss.global_vocab_size model_spec "
                    "activation_checkpoint.determinism_check activation_checkpoint.debug "
                    "activation_checkpoint.visualize_memory_budget_pareto");
}

constexpr Table kTitan = {"torchtitan 0.3.0", kTitanKeys, kTitanGaps, "", is_titan_harmless};

/// The configurations that are known: whose figures a model has, and what each says (models/llama3/config_registry.py,
/// models/qwen3/config_registry.py). None ties a head that its model of the hub does not.
struct TitanConfig {
  const char *name, *model;
  std::int64_t batch, length;
  bool is_full;  ///< checkpoints: whole blocks, else products are kept
  std::int64_t tensor;
};
constexpr TitanConfig kTitanConfigs[] = {
    {"llama3_8b", "meta-llama/Llama-3.1-8B", 1, 8192, false, 1},
    {"llama3_70b", "meta-llama/Llama-3.1-70B", 8, 8192, true, 8},
    {"qwen3_0_6b", "Qwen/Qwen3-0.6B", 4, 4096, false, 1},
    {"qwen3_1_7b", "Qwen/Qwen3-1.7B", 4, 4096, false, 1},
    {"qwen3_14b", "Qwen/Qwen3-14B", 4, 4096, true, 1},
    {"qwen3_32b", "Qwen/Qwen3-32B", 2, 4096, true, 1},
    {"sft_qwen3_8b_math", "Qwen/Qwen3-8B", 1, 2048, false, 1},
};

std::int64_t titan_degree(Keys& keys, const char* key, std::int64_t fallback) {
  const std::int64_t said = keys.has(key) ? keys.size(key) : fallback;
  keys.mark(key);
  return std::clamp<std::int64_t>(said, 1, 65536);
}

/// FSDP2 wraps on one GPU too, for its mixed precision (models/llama3/parallelize.py: parallelize_llama).
void take_titan_parallel(Context& context, Keys& keys, const TitanConfig& config) {
  constexpr const char* kTensor = "parallelism.tensor_parallel_degree";
  std::int64_t others = 1;
  for (const auto& [key, fallback, text] :
       {std::tuple{kTensor, config.tensor, "each GPU has a part of each weight"},
        {"parallelism.pipeline_parallel_degree", std::int64_t{1}, "each GPU has some of the layers"},
        {"parallelism.context_parallel_degree", std::int64_t{1}, "each GPU has a part of the sequence"}}) {
    const std::int64_t degree = titan_degree(keys, key, fallback);
    if (degree > 1) keys.leave_out(key, Effect::less, text);
    others = std::min<std::int64_t>(others * degree, 65536);
  }
  Launch& launch = context.launch;
  if (launch.gpus > 1) launch.gpus = std::max<std::int64_t>(launch.gpus / others, 1);
  const std::int64_t copies = titan_degree(keys, "parallelism.data_parallel_replicate_degree", 1);
  const json shards = keys.value("parallelism.data_parallel_shard_degree");
  if (copies > 1 || (shards.is_number_integer() && shards > 0 && shards < launch.gpus))
    keys.leave_out("parallelism.data_parallel_replicate_degree", Effect::more,
                   "copies of the shards: each GPU has more of the weights");
  take_gpus(context, "fsdp2");
  context.ledger.put("/parallel/strategy", "fsdp2");
  keys.note("parallelism.data_parallel_shard_degree", "/parallel/strategy");
  const std::string weights = dtype_of(keys.text("training.dtype"));
  const std::string compute = dtype_of(keys.text("training.mixed_precision_param"));
  keys.take("training.dtype", "/training/precision", weights.empty() ? "fp32" : weights);
  if (compute != weights && !compute.empty())
    keys.take("training.mixed_precision_param", "/parallel/fsdp/param_dtype", compute);
  keys.take("training.mixed_precision_reduce", "/parallel/fsdp/reduce_dtype",
            dtype_of(keys.text("training.mixed_precision_reduce")));
  keys.take("parallelism.fsdp_reshard_after_forward", "/parallel/fsdp/reshard_after_forward",
            keys.text("parallelism.fsdp_reshard_after_forward") != "never");
  if (keys.truth("training.enable_cpu_offload"))
    keys.take("training.enable_cpu_offload", "/parallel/fsdp/cpu_offload", true);
  // distributed/fsdp.py: apply_fsdp_to_decoder
  keys.leave_out("parallelism.fsdp_reshard_after_forward", Effect::either,
                 "embeddings, and the head with the last norm, are gathered apart from the rest");
}

/// ChunkedLossWrapper: the head, the loss and their backward for a part of the sequence at a time.
void note_titan_loss(Context& context, Keys& keys, std::int64_t tokens) {
  std::optional<std::int64_t> bytes;
  const json vocabulary = member(context.model_config(), "vocab_size");
  const std::int64_t chunks = std::clamp<std::int64_t>(keys.size("loss.num_chunks"), 1, 1 << 20);
  // logits in half precision and in float32, and the gradient of each
  if (vocabulary.is_number_integer() && vocabulary > 0 && vocabulary < 1 << 24)
    bytes = 12 * vocabulary.get<std::int64_t>() * (tokens - tokens / chunks);
  if (chunks > 1) keys.leave_out("loss.num_chunks", Effect::less, "the logits never exist as a whole, up to", bytes);
}

}  // namespace

void read_torchtitan(Context& context, Keys& keys) {
  keys.know(kTitan);
  Ledger& ledger = context.ledger;
  ledger.trainer = kTitan.project;
  const std::string name = keys.text("config");
  keys.mark("module");
  const auto* const config = std::find_if(std::begin(kTitanConfigs), std::end(kTitanConfigs),
                                          [&](const TitanConfig& one) { return name == one.name; });
  if (config == std::end(kTitanConfigs)) {
    std::string known;
    for (const TitanConfig& one : kTitanConfigs) known += (known.empty() ? "" : ", ") + std::string(one.name);
    return keys.refuse("config", "found " + quote(name) + ", which is not supported yet; expected " + known);
  }
  context.take_model(keys, "config", config->model);
  keys.leave_out("module", Effect::either,
                 "torchtitan's own class of the model (components of models/common) keeps other activations than "
                 "transformers', which is taken here");
  const auto number = [&](const char* key, std::int64_t fallback) {
    return std::clamp<std::int64_t>(keys.has(key) ? keys.size(key) : fallback, 1, 1 << 24);
  };
  const std::int64_t batch = std::min<std::int64_t>(number("training.local_batch_size", config->batch), 65536);
  const std::int64_t length = number("training.seq_len", config->length);
  take_titan_parallel(context, keys, *config);
  keys.take("training.local_batch_size", "/data/micro_batch_size", batch);
  keys.take("training.seq_len", "/data/sequence_length", length);
  const std::int64_t all = batch * std::max<std::int64_t>(context.launch.gpus, 1);
  const json global = keys.value("training.global_batch_size");
  keys.take("training.global_batch_size", "/training/gradient_accumulation_steps",
            global.is_number_integer() && global > all && global < 1 << 24 ? global.get<std::int64_t>() / all : 1);
  keys.take("training.max_norm");
  const std::string implementation = keys.text("optimizer.implementation");
  if (implementation == "fused_opt_states_bf16")
    keys.leave_out("optimizer.implementation", Effect::less, "the optimizer's states are bfloat16");
  // components/optimizer/optimizer.py: default_adamw
  keys.take(
      "optimizer.implementation", "/training/optimizer",
      {{"name", "torch.optim.AdamW"},
       {"args",
        {{"weight_decay", 0.1}, {implementation == "foreach" ? "foreach" : "fused", implementation != "for-loop"}}}});
  ledger.put("/training/stage", "full");
  ledger.put("/training/attention", "sdpa");
  const std::string said = keys.text("activation_checkpoint");
  const std::string policy = said.empty() ? (config->is_full ? "full" : "selective") : said;
  keys.take("activation_checkpoint", "/training/activation_checkpointing",
            policy == "none" || policy == "memory-budget" ? "none" : "non-reentrant");
  if (policy == "selective")
    keys.leave_out("activation_checkpoint", Effect::more,
                   "attention and every second product of a block are kept, not computed again");
  if (policy == "memory-budget")
    keys.leave_out("activation_checkpoint", Effect::less, "the compiler computes again what a budget says");
  if (keys.truth("compile.enable")) keys.take("compile.enable", "/training/torch_compile", true);
  if (!keys.truth("training.disable_cuda_graphs"))
    keys.leave_out("training.disable_cuda_graphs", Effect::more,
                   "forward and backward are one CUDA graph, whose memory stays taken, gradients among it");
  note_titan_loss(context, keys, std::min<std::int64_t>(batch * length, 1 << 26));
}

}  // namespace oometer::importers
