#include "importers/verl/verl.h"

#include <algorithm>
#include <optional>
#include <string_view>

#include "config/reader.h"
#include "importers/parallel.h"

namespace oometer::importers {

using nlohmann::json;

namespace {

constexpr const char* kVerlData = "trainer/config/sft_trainer_engine.yaml: data";
constexpr const char* kVerlTrainer = "trainer/config/sft_trainer_engine.yaml: trainer";
constexpr const char* kVerlModel = "trainer/config/model/hf_model.yaml";
constexpr const char* kVerlEngine = "trainer/config/engine/fsdp.yaml";
constexpr const char* kVerlOptim = "trainer/config/optim/fsdp.yaml";

constexpr Key kVerlKeys[] = {
    {"model.path", "", kVerlModel, ""},
    {"model.partial_pretrain", "", "trainer/config/sft_trainer.yaml of versions before 0.7", ""},
    {"model.hf_config_path", "", kVerlModel, ""},
    {"model.override_config.attn_implementation", "\"flash_attention_2\"", "workers/config/model.py: HFModelConfig",
     ""},
    {"model.enable_gradient_checkpointing", "true", kVerlModel, ""},
    {"model.use_remove_padding", "true", kVerlModel, ""},
    {"model.use_liger", "false", kVerlModel, ""},
    {"model.use_fused_kernels", "false", kVerlModel, ""},
    {"model.lora_rank", "0", kVerlModel, "/training/lora/rank"},
    {"model.lora_alpha", "16", kVerlModel, "/training/lora/alpha"},
    {"model.target_modules", "\"all-linear\"", kVerlModel, ""},
    {"data.train_batch_size", "256", kVerlData, ""},
    {"data.micro_batch_size_per_gpu", "4", kVerlData, ""},
    {"data.max_token_len_per_gpu", "8192", kVerlData, ""},
    {"data.use_dynamic_bsz", "true", kVerlData, ""},
    {"data.max_length", "1024", kVerlData, ""},
    {"engine", "\"fsdp\"", kVerlData, ""},
    {"engine.strategy", "\"fsdp\"", kVerlEngine, ""},
    {"engine.model_dtype", "\"fp32\"", kVerlEngine, ""},
    {"engine.mixed_precision.param_dtype", "\"bf16\"", "workers/engine/fsdp/transformer_impl.py: _build_fsdp_module",
     ""},
    {"engine.mixed_precision.reduce_dtype", "\"fp32\"", "workers/engine/fsdp/transformer_impl.py: _build_fsdp_module",
     ""},
    {"engine.mixed_precision.buffer_dtype", "\"fp32\"", "workers/engine/fsdp/transformer_impl.py: _build_fsdp_module",
     ""},
    {"engine.reshard_after_forward", "true", kVerlEngine, ""},
    {"engine.offload_policy", "false", kVerlEngine, ""},
    {"engine.forward_prefetch", "false", kVerlEngine, ""},
    {"engine.use_orig_params", "false", kVerlEngine, ""},
    {"engine.wrap_policy.transformer_layer_cls_to_wrap", "", kVerlEngine, ""},
    {"engine.wrap_policy.min_num_params", "0", kVerlEngine, ""},
    {"engine.fsdp_size", "-1", kVerlEngine, ""},
    {"engine.ulysses_sequence_parallel_size", "1", kVerlEngine, ""},
    {"optim.optimizer", "\"AdamW\"", kVerlOptim, ""},
    {"optim.optimizer_impl", "\"torch.optim\"", kVerlOptim, ""},
    {"optim.weight_decay", "0.01", kVerlOptim, ""},
    {"optim.clip_grad", "1.0", kVerlOptim, "/training/max_grad_norm"},
    {"trainer.n_gpus_per_node", "1", kVerlTrainer, ""},
    {"trainer.nnodes", "1", kVerlTrainer, ""},
};

constexpr Gap kVerlGaps[] = {
    {"model.enable_activation_offload", "", Effect::less, "what is saved for backward lies in host memory"},
    {"model.tiled_mlp.enabled", "", Effect::less, "an MLP computes a part of the sequence at a time"},
    {"model.mtp.enable", "", Effect::more, "layers that predict further tokens"},
    {"model.lora_adapter_path", "", Effect::either, "adapters that are loaded, of the rank that they have"},
    {"model.exclude_modules", "", Effect::less, "these layers have no adapters"},
    {"model.target_parameters", "", Effect::more, "adapters of parameters that are no layer's weight"},
    {"model.override_config", "", Effect::either, "another configuration of the model"},
    {"model.external_lib", "", Effect::either, "code of its own that may change the model"},
    {"engine.qat.enable", "", Effect::more, "weights as they would be quantized, beside their own"},
    {"engine.use_no_sync_for_gradient_accumulation", "", Effect::more,
     "gradients of all weights are kept whole between micro-batches"},
    {"engine.pad_to_length", "", Effect::more, "rows are padded to whole buckets"},
    {"optim.override_optimizer_config", "", Effect::either, "arguments of the optimizer"},
};

/// Keys that change no memory of a step of supervised fine-tuning. A share that engine.param_offload and
/// optimizer_offload put into host memory is back on the GPU while it trains (workers/engine/base.py: BaseEngineCtx);
/// entropy, which torch.compile is for, is not computed.
constexpr std::string_view kVerlHarmless =
    "model model._target_ model.tokenizer_path model.use_shm model.trust_remote_code model.custom_chat_template "
    "model.fused_kernel_options.impl_backend model.tiled_mlp.num_shards engine._target_ engine.param_offload "
    "engine.optimizer_offload engine.seed engine.full_determinism engine.entropy_from_logits_with_chunking "
    "engine.entropy_from_logits_chunk_size engine.use_torch_compile engine.entropy_checkpointing "
    "engine.pad_to_length_bucket engine.forward_only engine.dtype optim optim._target_ optim.lr optim.betas "
    "optim.lr_warmup_steps_ratio optim.total_training_steps optim.lr_warmup_steps optim.min_lr_ratio optim.num_cycles "
    "optim.lr_scheduler_type optim.zero_indexed_step optim.warmup_style optim.lr_scheduler optim.warmup_steps_ratio";

bool is_verl_harmless(std::string_view key) {
  for (const char* section : {"data.", "trainer.", "checkpoint.", "profiler.", "model.mtp.", "model.lora.",
                              "engine.qat.", "engine.turbo_config.", "hydra.", "ray_kwargs."})
    if (key.starts_with(section)) return true;
  return key == "config_name" || key == "config_path" || key == "defaults" || key == "profiler";
}

constexpr Table kVerl = {"verl 0.9.1", kVerlKeys, kVerlGaps, kVerlHarmless, is_verl_harmless};

constexpr const char *kOverride = "model.override_config", *kAttention = "attn_implementation";

void put_verl(json& out, const std::string& name, const json& value) {
  const std::size_t sign = name.find_first_not_of('+');
  const std::string plain = sign == std::string::npos ? name : name.substr(sign);
  if (!value.is_object() || value.empty() || plain == "optim.override_optimizer_config") {
    out[plain] = value;
    return;
  }
  if (plain == kOverride) {
    json rest = value;
    if (rest.contains(kAttention)) out[plain + "." + kAttention] = rest[kAttention];
    rest.erase(kAttention);
    out[plain] = rest;
    return;
  }
  for (const auto& [key, inner] : value.items()) put_verl(out, plain + "." + key, inner);
}

/// A list of Hydra's command line, [q_proj,v_proj], or the value as it is.
json hydra_list(const json& value) {
  if (!value.is_string()) return value;
  const std::string text = value;
  if (!text.starts_with('[') || !text.ends_with(']')) return value;
  json names = json::array();
  for (const std::string& word : split_words(std::string_view(text).substr(1, text.size() - 2), ", '\""))
    names.push_back(word);
  return names;
}

/// Rows are samples behind each other without padding, as many tokens as a GPU may have, else as many samples as a
/// micro-batch (workers/engine/utils.py: prepare_micro_batches).
void take_verl_samples(Context& context, Keys& keys) {
  const std::int64_t length = std::max<std::int64_t>(keys.size("data.max_length"), 1);
  const std::int64_t batch = std::max<std::int64_t>(keys.size("data.micro_batch_size_per_gpu"), 1);
  const bool is_dynamic = keys.truth("data.use_dynamic_bsz");
  const std::int64_t limit = std::max<std::int64_t>(keys.size("data.max_token_len_per_gpu"), 1);
  const std::int64_t each =
      is_dynamic ? std::max<std::int64_t>(limit / length, 1) : std::min<std::int64_t>(batch, 4096);
  const std::int64_t gpus = std::max<std::int64_t>(context.launch.gpus, 1);
  const std::int64_t of_gpu = std::max<std::int64_t>(keys.size("data.train_batch_size") / gpus, 1);
  const char* const size_key = is_dynamic ? "data.max_token_len_per_gpu" : "data.micro_batch_size_per_gpu";
  keys.note("data.use_dynamic_bsz", "/data/micro_batch_size");
  keys.mark(is_dynamic ? "data.micro_batch_size_per_gpu" : "data.max_token_len_per_gpu");
  keys.take("data.train_batch_size", "/training/gradient_accumulation_steps",
            std::max<std::int64_t>((of_gpu + each - 1) / each, 1));
  if (!keys.truth("model.use_remove_padding")) {
    keys.take("data.max_length", "/data/sequence_length", length);
    return keys.take(size_key, "/data/micro_batch_size", each);
  }
  const std::int64_t row = is_dynamic ? std::max(limit, length) : each * length;
  json documents = json::array();
  for (std::int64_t rest = row; rest > 0 && documents.size() < 4096; rest -= length)
    documents.push_back(std::min(rest, length));
  context.ledger.put("/data/micro_batch_size", 1);
  keys.take(size_key, "/data/sequence_length", row);
  if (documents.size() > 1)
    keys.take("data.max_length", "/data/packed", json::array({std::move(documents)}));
  else
    keys.note("data.max_length", "/data/sequence_length");
}

/// logprobs_from_logits (utils/torch_functional.py): flash-attn's cross entropy of logits as they are, whose gradient
/// takes their place.
void note_verl_loss(Context& context, Keys& keys) {
  std::optional<std::int64_t> bytes;
  const json& config = context.model_config();
  const json text = member(config, "text_config");
  const json vocabulary = member(text.is_object() ? text : config, "vocab_size");
  const json data = member(context.ledger.job, "data");
  const json row = member(data, "sequence_length"), rows = member(data, "micro_batch_size");
  if (vocabulary.is_number_integer() && vocabulary > 0 && vocabulary < 1 << 24 && row.is_number_integer() &&
      rows.is_number_integer() && row < 1 << 26 && rows < 1 << 13)
    bytes = 8 * vocabulary.get<std::int64_t>() * row.get<std::int64_t>() * rows.get<std::int64_t>();
  if (keys.truth("model.use_fused_kernels"))
    return keys.leave_out("model.use_fused_kernels", Effect::less, "the logits never exist as a whole, at least",
                          bytes);
  keys.mark("model.use_fused_kernels");
  context.ledger.unmodelled.push_back(
      {"", "", json(),
       "verl's loss is flash-attn's cross entropy, without logits in float32 and a gradient beside them, up to",
       Effect::less, bytes});
}

void take_verl_parallel(Context& context, Keys& keys, const std::string& compute) {
  const std::string strategy = keys.text("engine.strategy");
  const bool is_second = strategy == "fsdp2";
  const std::int64_t gpus = context.launch.gpus;
  if (!is_second && strategy != "fsdp")
    return keys.refuse("engine.strategy",
                       "found " + quote(strategy) + ", which is not supported yet; expected fsdp or fsdp2");
  // One process is wrapped too.
  take_gpus(context, is_second ? "fsdp2" : "fsdp1");
  keys.take("engine.strategy", "/parallel/strategy", is_second ? "fsdp2" : "fsdp1");
  const auto to = [](const char* key) { return std::string("/parallel/fsdp/") + key; };
  keys.take("engine.mixed_precision.param_dtype", to("param_dtype"), compute);
  for (const char* key : {"reduce_dtype", "buffer_dtype"}) {
    const std::string name = std::string("engine.mixed_precision.") + key;
    const std::string type = dtype_of(keys.text(name.c_str()));
    if (is_second && key == std::string_view("buffer_dtype"))
      keys.mark("engine.mixed_precision.buffer_dtype");
    else if (!type.empty())
      keys.take(name.c_str(), to(key), type);
  }
  const char* const reshards = "engine.reshard_after_forward";
  if (is_second) {
    keys.take(reshards, to("reshard_after_forward"), keys.truth(reshards));
    if (keys.truth("engine.offload_policy")) keys.take("engine.offload_policy", to("cpu_offload"), true);
    for (const char* key : {"engine.use_orig_params", "engine.wrap_policy.min_num_params"}) keys.mark(key);
    if (keys.truth("engine.forward_prefetch"))
      keys.leave_out("engine.forward_prefetch", Effect::more, "the next block is gathered before this one has run");
    // utils/fsdp_utils.py: _select_fsdp2_wrap_targets
    if (member(context.model_config(), "tie_word_embeddings") != true)
      keys.leave_out("engine.strategy", Effect::either, "embeddings and head are gathered apart from the rest");
  } else {
    keys.take(reshards, to("sharding"), keys.truth(reshards) ? "FULL_SHARD" : "SHARD_GRAD_OP");
    keys.take("engine.use_orig_params", to("use_orig_params"), keys.truth("engine.use_orig_params"));
    keys.take("engine.forward_prefetch", to("forward_prefetch"), keys.truth("engine.forward_prefetch"));
    context.ledger.put(to("sync_module_states"), true);
    keys.mark("engine.offload_policy");
    if (keys.size("engine.wrap_policy.min_num_params") > 0)
      keys.leave_out("engine.wrap_policy.min_num_params", Effect::either, "units of this size in the place of blocks");
    else if (keys.size("model.lora_rank") > 0)  // utils/fsdp_utils.py: get_fsdp_wrap_policy
      keys.leave_out("engine.strategy", Effect::either, "each adapter is a unit of its own within its block");
  }
  if (const json wrap = hydra_list(keys.value("engine.wrap_policy.transformer_layer_cls_to_wrap")); !wrap.is_null())
    keys.take("engine.wrap_policy.transformer_layer_cls_to_wrap", to("wrap"),
              wrap.is_string() ? json::array({wrap}) : wrap);
  if (const json size = keys.value("engine.fsdp_size"); size.is_number_integer() && size > 0 && size < gpus)
    keys.leave_out("engine.fsdp_size", Effect::more, "copies of the shards: each GPU has more of the weights");
}

}  // namespace

bool is_verl(const json& tree) {
  if (!tree.is_object() || tree.contains("actor_rollout_ref")) return false;
  const json data = member(tree, "data");
  const bool is_nested = data.is_object() && (tree.contains("engine") || tree.contains("optim")) &&
                         (data.contains("train_files") || data.contains("max_token_len_per_gpu") ||
                          data.contains("micro_batch_size_per_gpu"));
  return is_nested && tree.contains("model");
}

json dotted_verl(const json& tree) {
  json out = json::object();
  for (const auto& [name, value] : tree.items()) put_verl(out, name, value);
  return out;
}

void read_verl(Context& context, Keys& keys, const std::string& program) {
  keys.know(kVerl);
  Ledger& ledger = context.ledger;
  ledger.trainer = kVerl.project;
  if (program.starts_with("main_"))
    keys.refuse("", "verl's reinforcement learning (" + program + ") is not supported yet; expected sft_trainer");
  if (keys.has("engine") && keys.text("engine") != "fsdp")  // a group of Hydra's: engine=megatron
    keys.refuse("engine", "found " + quote(keys.text("engine")) + ", which is not supported yet; expected fsdp");
  keys.mark("engine");
  const bool is_older = !keys.has("model.path") && keys.has("model.partial_pretrain");
  context.take_model(keys, is_older ? "model.partial_pretrain" : "model.path");
  if (keys.has("model.hf_config_path"))
    keys.leave_out("model.hf_config_path", Effect::either, "another configuration of the model: give its config.json");
  Launch& launch = context.launch;
  const std::int64_t said = std::clamp<std::int64_t>(keys.size("trainer.n_gpus_per_node"), 1, 4096) *
                            std::clamp<std::int64_t>(keys.size("trainer.nnodes"), 1, 16);
  if (launch.gpus == 0 && keys.has("trainer.n_gpus_per_node"))
    launch.gpus = said, launch.file = keys.file(), launch.key = "trainer.n_gpus_per_node";
  if (const std::int64_t parts = keys.size("engine.ulysses_sequence_parallel_size"); parts > 1)
    keys.leave_out("engine.ulysses_sequence_parallel_size", Effect::less, "each GPU has a part of the sequence");
  const std::string weights = dtype_of(keys.text("engine.model_dtype"));
  const std::string compute = dtype_of(keys.text("engine.mixed_precision.param_dtype"));
  if (weights.empty()) keys.refuse("engine.model_dtype", "expected fp32, bf16 or fp16");
  // forward_step runs under autocast of the type that FSDP computes in.
  context.take_precision(keys, "engine.model_dtype", weights.empty() ? "fp32" : weights,
                         "engine.mixed_precision.param_dtype", compute == "fp32" ? "" : compute);
  keys.take("model.override_config.attn_implementation", "/training/attention",
            keys.text("model.override_config.attn_implementation"));
  keys.take("model.enable_gradient_checkpointing", "/training/activation_checkpointing",
            keys.truth("model.enable_gradient_checkpointing") ? "non-reentrant" : "none");
  take_verl_samples(context, keys);
  keys.take("optim.clip_grad");
  keys.take("optim.optimizer", "/training/optimizer/name",
            keys.text("optim.optimizer_impl") + "." + keys.text("optim.optimizer"));
  keys.take("optim.weight_decay", "/training/optimizer/args/weight_decay", keys.value("optim.weight_decay"));
  keys.mark("optim.optimizer_impl");
  if (keys.size("model.lora_rank") > 0) {
    keys.take("model.lora_rank");
    keys.take("model.lora_alpha");
    keys.take("model.target_modules", "/training/lora/target_modules", hydra_list(keys.value("model.target_modules")));
    // _build_lora_module makes them as the weights are.
    ledger.put("/training/lora/autocast_adapter_dtype", false);
  } else {
    keys.take("model.lora_rank", "/training/stage", "full");
    for (const char* key : {"model.lora_alpha", "model.target_modules"}) keys.mark(key);
  }
  if (keys.truth("model.use_liger"))
    keys.take("model.use_liger", "/training/liger", {{"fused_linear_cross_entropy", false}});
  take_verl_parallel(context, keys, compute);
  note_verl_loss(context, keys);
}

}  // namespace oometer::importers
