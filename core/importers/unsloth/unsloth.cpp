#include "importers/unsloth/unsloth.h"

#include <algorithm>
#include <optional>

#include "config/reader.h"
#include "importers/transformers/training_arguments.h"

namespace oometer::importers {

using nlohmann::json;

namespace {

constexpr const char* kLoads = "unsloth/models/loader.py: FastLanguageModel.from_pretrained";
constexpr const char* kAdapts = "unsloth/models/llama.py: get_peft_model";
constexpr const char* kReplaces = "unsloth/models/rl.py: replacements";

constexpr Key kUnslothKeys[] = {
    {"from_pretrained.model_name", "\"unsloth/Llama-3.2-1B-Instruct\"", kLoads, ""},
    {"from_pretrained.max_seq_length", "2048", kLoads, ""},
    {"from_pretrained.dtype", "", kLoads, ""},
    {"from_pretrained.load_in_4bit", "true", kLoads, ""},
    {"from_pretrained.load_in_8bit", "false", kLoads, ""},
    {"from_pretrained.load_in_16bit", "false", kLoads, ""},
    {"from_pretrained.full_finetuning", "false", kLoads, ""},
    {"get_peft_model.r", "16", kAdapts, "/training/lora/rank"},
    {"get_peft_model.lora_alpha", "16", kAdapts, "/training/lora/alpha"},
    {"get_peft_model.lora_dropout", "0.0", kAdapts, "/training/lora/dropout"},
    {"get_peft_model.bias", "\"none\"", kAdapts, "/training/lora/bias"},
    {"get_peft_model.target_modules",
     R"(["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"])", kAdapts, ""},
    {"get_peft_model.modules_to_save", "", kAdapts, ""},
    {"get_peft_model.use_rslora", "false", kAdapts, ""},
    {"get_peft_model.use_gradient_checkpointing", "\"unsloth\"", kAdapts, ""},
    {"get_peft_model.finetune_vision_layers", "true", "unsloth/models/vision.py: get_peft_model", ""},
    {"per_device_train_batch_size", "4", kReplaces, "/data/micro_batch_size"},
    {"gradient_accumulation_steps", "2", kReplaces, "/training/gradient_accumulation_steps"},
    {"weight_decay", "0.001", kReplaces, ""},
    {"optim", "\"adamw_8bit\"", kReplaces, ""},
    {"max_seq_length", "", kReplaces, ""},
    {"max_length", "", kReplaces, ""},
};

constexpr Gap kUnslothGaps[] = {
    {"from_pretrained.fast_inference", "", Effect::more, "vLLM takes its share of the GPU beside the training"},
    {"from_pretrained.offload_embedding", "", Effect::less, "the token embeddings lie in host memory"},
    {"from_pretrained.load_in_fp8", "", Effect::less, "frozen weights in fp8"},
    {"from_pretrained.qat_scheme", "", Effect::more, "weights as they would be quantized, beside their own"},
    {"from_pretrained.resize_model_vocab", "", Effect::more, "rows of the embeddings and of the head for new tokens"},
    {"from_pretrained.unsloth_tiled_mlp", "", Effect::less, "an MLP computes a part of the sequence at a time"},
    {"from_pretrained.float32_mixed_precision", "", Effect::more, "weights in float32 under autocast"},
    {"from_pretrained.text_only", "", Effect::less, "towers of images and sound are not loaded"},
    {"from_pretrained.quantization_config", "", Effect::either, "weights quantized otherwise than by load_in_4bit"},
    {"get_peft_model.layers_to_transform", "", Effect::less, "only these layers have adapters"},
    {"get_peft_model.finetune_last_n_layers", "", Effect::less, "only the last layers have adapters"},
    {"get_peft_model.target_parameters", "", Effect::more, "adapters of parameters that are no layer's weight"},
    {"get_peft_model.loftq_config", "", Effect::either, "adapters that begin as LoftQ makes them"},
    {"get_peft_model.qat_scheme", "", Effect::more, "weights as they would be quantized, beside their own"},
    {"get_peft_model.use_dora", "", Effect::more, "magnitudes of DoRA, and the norms of whole weights"},
    {"get_peft_model.finetune_attention_modules", "true", Effect::less, "attention has no adapters"},
    {"get_peft_model.finetune_mlp_modules", "true", Effect::less, "MLPs have no adapters"},
    {"embedding_learning_rate", "", Effect::either, "a parameter group for the embeddings"},
};

constexpr std::string_view kUnslothHarmless =
    "from_pretrained.token from_pretrained.device_map from_pretrained.fix_tokenizer from_pretrained.trust_remote_code "
    "from_pretrained.revision from_pretrained.use_exact_model_name from_pretrained.gpu_memory_utilization "
    "from_pretrained.float8_kv_cache from_pretrained.random_state from_pretrained.max_lora_rank "
    "from_pretrained.disable_log_stats from_pretrained.use_gradient_checkpointing from_pretrained.rope_scaling "
    "from_pretrained.attn_implementation get_peft_model.random_state get_peft_model.max_seq_length "
    "get_peft_model.init_lora_weights get_peft_model.temporary_location get_peft_model.layers_pattern "
    "get_peft_model.task_type get_peft_model.finetune_language_layers get_peft_model.ensure_weight_tying "
    "dataset_text_field dataset_num_proc packing padding_free dataset_kwargs average_tokens_across_devices "
    "gradient_checkpointing gradient_checkpointing_kwargs eos_token pad_token completion_only_loss "
    "assistant_only_loss loss_type remove_unused_columns bf16 fp16";

constexpr Table kUnsloth = {"unsloth 2026.8.19", kUnslothKeys, kUnslothGaps, kUnslothHarmless};

/// The model that one of Unsloth's 4-bit checkpoints was made of.
std::string whole_name(std::string name) {
  for (const char* suffix : {"-unsloth-bnb-4bit", "-bnb-4bit"})
    if (name.ends_with(suffix)) return name.substr(0, name.size() - std::string_view(suffix).size());
  return name;
}

/// The inputs of all blocks, which a checkpoint of Unsloth's moves to host memory (unsloth_zoo,
/// gradient_checkpointing.py: UnslothCheckpointFunction).
std::optional<std::int64_t> inputs_of_blocks(const json& config, std::int64_t tokens) {
  const json text = member(config, "text_config");
  const json& sizes = text.is_object() ? text : config;
  const json layers = member(sizes, "num_hidden_layers"), width = member(sizes, "hidden_size");
  if (!layers.is_number_integer() || !width.is_number_integer() || layers > 4096 || width > (1 << 17)) return {};
  return 2 * tokens * layers.get<std::int64_t>() * width.get<std::int64_t>();
}

/// unsloth_zoo, fused_losses: the head's product and the loss in pieces, forward and backward at once.
void note_loss(Context& context, std::int64_t tokens) {
  const json& config = context.model_config();
  const json text = member(config, "text_config");
  const json rows = member(text.is_object() ? text : config, "vocab_size");
  std::optional<std::int64_t> bytes;
  // logits in half precision and in float32, and the gradient of each
  if (rows.is_number_integer() && rows > 0 && rows < 1 << 24) bytes = 12 * tokens * rows.get<std::int64_t>();
  context.ledger.unmodelled.push_back(
      {"", "", json(), "Unsloth's loss makes no whole logits, up to", Effect::less, bytes});
}

void take_unsloth_checkpointing(Context& context, Keys& keys, std::int64_t tokens) {
  const char* const key = "get_peft_model.use_gradient_checkpointing";
  const char* const at = "/training/activation_checkpointing";
  const std::string said = lower_case(keys.text(key));
  if (said == "false" || said.empty()) return keys.take(key, at, "none");
  keys.take(key, at, "reentrant");  // prepare_model_for_kbit_training(use_reentrant = True)
  if (said == "unsloth")
    keys.leave_out(key, Effect::less, "the inputs of blocks lie in host memory, up to",
                   inputs_of_blocks(context.model_config(), tokens));
}

void take_unsloth_adapters(Context& context, Keys& keys) {
  for (const char* key :
       {"get_peft_model.r", "get_peft_model.lora_alpha", "get_peft_model.lora_dropout", "get_peft_model.bias"})
    keys.take(key);
  const char* const targets = "get_peft_model.target_modules";
  const json& config = context.model_config();
  if (keys.truth("get_peft_model.finetune_vision_layers") && config.is_object() && config.contains("vision_config"))
    keys.refuse("get_peft_model.finetune_vision_layers",
                "adapters of a tower by Unsloth's own choice are not supported yet: expected false");
  std::vector<std::string> names = keys.names(targets);
  std::vector<std::string> saved = keys.names("get_peft_model.modules_to_save");
  // These train whole, whichever list names them (llama.py: get_peft_model).
  for (const char* whole : {"embed_tokens", "lm_head"})
    if (const auto found = std::find(names.begin(), names.end(), whole); found != names.end()) {
      names.erase(found);
      if (std::find(saved.begin(), saved.end(), whole) == saved.end()) saved.emplace_back(whole);
    }
  keys.take(targets, "/training/lora/target_modules", names.size() == 1 ? json(names[0]) : json(names));
  if (const char* key = "get_peft_model.modules_to_save"; !saved.empty())
    keys.take(keys.has(key) ? key : targets, "/training/lora/modules_to_save", saved);
  if (keys.truth("get_peft_model.use_rslora"))
    keys.take("get_peft_model.use_rslora", "/training/lora/use_rslora", true);
  for (const char* key : {"num_experts", "num_local_experts", "n_routed_experts"})
    if (config.is_object() && config.contains(key)) {
      keys.leave_out(targets, Effect::more, "experts have adapters too where their projections are among these");
      break;
    }
}

}  // namespace

void read_unsloth(Context& context, Keys& keys, const std::string& program) {
  keys.know(training_arguments());
  keys.know(kUnsloth);
  Ledger& ledger = context.ledger;
  ledger.trainer = kUnsloth.project;
  if (program != "sft" && !program.empty())
    keys.refuse("", "Unsloth's trainer of " + program + " is not supported yet; expected SFTTrainer");
  ledger.put("/training/loop/name", "transformers.Trainer");
  const char* const model = "from_pretrained.model_name";
  const std::string name = keys.text(model);
  context.take_model(keys, model, whole_name(name));
  if (keys.truth("from_pretrained.full_finetuning"))
    keys.refuse("from_pretrained.full_finetuning", "training of whole models by Unsloth is not supported yet");

  // rl.py: the model's length goes before the trainer's where it is shorter, and before max_length always.
  std::int64_t length = keys.size("from_pretrained.max_seq_length");
  const char* length_key = "from_pretrained.max_seq_length";
  if (const std::int64_t own = keys.size("max_seq_length"); own > 0 && own < length)
    length = own, length_key = "max_seq_length";
  keys.mark("max_seq_length");
  keys.ignore("max_length");
  keys.take(length_key, "/data/sequence_length", length);

  // loader.py: bfloat16 where the GPU has it; the trainer follows the model (rl.py: mixed_precision).
  const std::string said = dtype_of(keys.text("from_pretrained.dtype"));
  const std::string type = said == "fp16" ? "fp16" : "bf16";
  if (said == "fp32") keys.refuse("from_pretrained.dtype", "float32 is not supported yet with Unsloth");
  context.take_precision(keys, "from_pretrained.dtype", type, "from_pretrained.dtype", type);
  const bool is_4bit = (keys.truth("from_pretrained.load_in_4bit") && !keys.truth("from_pretrained.load_in_16bit") &&
                        !keys.truth("from_pretrained.load_in_8bit")) ||
                       name.ends_with("-bnb-4bit");
  if (is_4bit) {
    keys.take("from_pretrained.load_in_4bit", "/training/quantization/load_in_4bit", true);
    // llama.py: from_pretrained
    ledger.put("/training/quantization/bnb_4bit_quant_type", "nf4");
    ledger.put("/training/quantization/bnb_4bit_use_double_quant", true);
    ledger.put("/training/quantization/bnb_4bit_compute_dtype", type == "fp16" ? "float16" : "bfloat16");
    // unsloth_zoo, training_utils.py: prepare_model_for_training makes only what trains float32
    ledger.put("/training/quantization/prepare_model_for_kbit_training", false);
    keys.leave_out(model, Effect::more,
                   "where the hub has Unsloth's dynamic 4-bit checkpoint of it, some of its layers stay in 16 bits");
  } else if (keys.truth("from_pretrained.load_in_8bit")) {
    keys.take("from_pretrained.load_in_8bit", "/training/quantization/load_in_8bit", true);
  }
  ledger.put("/training/attention", "sdpa");
  const std::int64_t batch = std::min<std::int64_t>(keys.size("per_device_train_batch_size"), 65536);
  note_loss(context, batch * length);
  take_unsloth_checkpointing(context, keys, batch * length);
  take_unsloth_adapters(context, keys);
  take_training_arguments(context, keys);
  ledger.unmodelled.push_back(
      {"",
       "",
       json(),
       "Unsloth's own kernels (norms, rotary embedding, MLP, adapters, attention) keep fewer activations; "
       "answered with transformers' own",
       Effect::less,
       {}});
}

}  // namespace oometer::importers
