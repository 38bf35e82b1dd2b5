#include "importers/automodel/automodel.h"

#include <algorithm>
#include <iterator>
#include <string_view>

#include "config/pattern.h"
#include "config/reader.h"
#include "importers/parallel.h"

namespace oometer::importers {

using nlohmann::json;

namespace {

constexpr const char* kAutoModel = "_transformers/auto_model.py: from_pretrained";
constexpr const char* kAutoMesh = "recipes/_dist_utils.py: _PARALLELISM_DEFAULTS";
constexpr const char* kAutoFsdp = "components/distributed/config.py: FSDP2Config";
constexpr const char* kAutoDdp = "components/distributed/config.py: DDPConfig";
constexpr const char* kAutoPeft = "components/_peft/lora.py: PeftConfig";
constexpr const char* kAutoBnb = "components/quantization/qlora.py: create_bnb_config";
constexpr const char* kAutoFreeze = "components/utils/model_utils.py: FreezeConfig";
constexpr const char* kAutoRecipe = "recipes/llm/train_ft.py: TrainFinetuneRecipeForNextTokenPrediction.setup";
constexpr const char* kAutoSteps = "components/training/step_scheduler.py: StepSchedulerConfig";

constexpr Key kAutoKeys[] = {
    {"recipe", "", "", ""},
    {"recipe._target_", "", "", ""},
    {"model._target_", "", "", ""},
    {"model.pretrained_model_name_or_path", "", "", ""},
    {"model.config.pretrained_model_name_or_path", "", "", ""},
    {"model.config", "", "", ""},
    {"model.torch_dtype", "\"auto\"", kAutoModel, ""},
    {"model.dtype", "", kAutoModel, ""},  // goes before torch_dtype
    // flash_attention_2 where flash-attn is installed, which its requirements leave to an extra
    {"model.attn_implementation", "\"sdpa\"", "_transformers/kernel_patches.py: DEFAULT_ATTN_IMPLEMENTATION", ""},
    {"model.backend.attn", "", "components/models/common/utils.py: BackendConfig", ""},
    {"model.force_hf", "false", kAutoModel, ""},
    {"model.use_liger_kernel", "true", kAutoModel, ""},
    {"model.text_config.use_cache", "true", "configuration_utils.py: transformers' own", ""},
    {"step_scheduler.local_batch_size", "1", kAutoRecipe, ""},
    {"step_scheduler.global_batch_size", "32", kAutoSteps, ""},
    {"packed_sequence.packed_sequence_size", "0", kAutoRecipe, ""},
    {"packed_sequence.pack_size", "0", "recipes/_typed_config.py: resolve_vlm_dataloader", ""},
    {"packed_sequence.max_length", "", "", ""},
    {"dataset.seq_length", "", "", ""},
    {"dataset.seq_len", "", "", ""},
    {"dataset.max_length", "", "", ""},
    {"dataloader.collate_fn.max_length", "", "", ""},
    {"validation_dataloader.batch_size", "", "recipes/_typed_config.py: _resolve_dataloader", ""},
    {"clip_grad_norm.max_norm", "1.0", kAutoRecipe, "/training/max_grad_norm"},
    {"distributed.strategy", "\"fsdp2\"", "recipes/_dist_utils.py: parse_distributed_section", ""},
    {"distributed.dp_size", "", kAutoMesh, ""},
    {"distributed.tp_size", "1", kAutoMesh, ""},
    {"distributed.cp_size", "1", kAutoMesh, ""},
    {"distributed.pp_size", "1", kAutoMesh, ""},
    {"distributed.ep_size", "1", kAutoMesh, ""},
    {"distributed.activation_checkpointing", "false", kAutoFsdp, ""},
    {"distributed.mp_policy.param_dtype", "\"bfloat16\"", kAutoFsdp, ""},
    {"distributed.mp_policy.reduce_dtype", "\"float32\"", kAutoFsdp, ""},
    {"distributed.reshard_after_forward", "", kAutoFsdp, ""},
    {"distributed.offload_policy._target_", "", kAutoFsdp, ""},
    {"distributed.autocast_dtype", "", kAutoFsdp, ""},
    {"distributed.bucket_cap_mb", "", kAutoDdp, "/parallel/ddp/bucket_cap_mb"},
    {"distributed.broadcast_buffers", "false", kAutoDdp, "/parallel/ddp/broadcast_buffers"},
    {"distributed.find_unused_parameters", "false", kAutoDdp, "/parallel/ddp/find_unused_parameters"},
    {"distributed.static_graph", "false", kAutoDdp, "/parallel/ddp/static_graph"},
    {"distributed.gradient_as_bucket_view", "false", kAutoDdp, "/parallel/ddp/gradient_as_bucket_view"},
    {"optimizer._target_", "", "", ""},
    {"optimizer", "", "", ""},
    {"optimizer.weight_decay", "", "", ""},
    {"optimizer.amsgrad", "", "", ""},
    {"optimizer.foreach", "", "", ""},
    {"optimizer.fused", "", "", ""},
    {"optimizer.exp_avg_dtype", "", "", ""},
    {"optimizer.exp_avg_sq_dtype", "", "", ""},
    {"optimizer.master_weights", "", "", ""},
    {"optimizer.master_weight_dtype", "", "", ""},
    {"optimizer.store_param_remainders", "", "", ""},
    {"optimizer.master_weight_bits", "", "", ""},
    {"optimizer.quantize", "", "", ""},
    {"loss_fn._target_", "", "", ""},
    {"peft._target_", "", "", ""},
    {"peft.dim", "8", kAutoPeft, "/training/lora/rank"},
    {"peft.alpha", "32", kAutoPeft, "/training/lora/alpha"},
    {"peft.dropout", "0.0", kAutoPeft, "/training/lora/dropout"},
    {"peft.dropout_position", "\"post\"", kAutoPeft, ""},
    {"peft.target_modules", "", kAutoPeft, ""},
    {"peft.exclude_modules", "", kAutoPeft, ""},
    {"peft.match_all_linear", "false", kAutoPeft, ""},
    {"peft.use_dora", "false", kAutoPeft, ""},
    {"peft.lora_dtype", "", kAutoPeft, ""},
    {"peft.use_memory_efficient_lora", "true", kAutoPeft, ""},
    {"peft.use_triton", "false", kAutoPeft, ""},
    {"quantization.load_in_4bit", "false", kAutoBnb, ""},
    {"quantization.load_in_8bit", "false", kAutoBnb, ""},
    {"quantization.bnb_4bit_quant_type", "\"nf4\"", kAutoBnb, "/training/quantization/bnb_4bit_quant_type"},
    {"quantization.bnb_4bit_use_double_quant", "true", kAutoBnb, "/training/quantization/bnb_4bit_use_double_quant"},
    {"quantization.bnb_4bit_compute_dtype", "\"bfloat16\"", kAutoBnb, "/training/quantization/bnb_4bit_compute_dtype"},
    {"freeze_config.freeze_vision_tower", "true", kAutoFreeze, ""},
    {"freeze_config.freeze_language_model", "false", kAutoFreeze, ""},
    {"compile.enabled", "false", "components/utils/compile_utils.py: CompileConfig", "/training/torch_compile"},
    {"fp8.enabled", "false", "components/quantization/fp8.py: FP8Config", "/training/fp8"},
    {"processor.min_pixels", "", "", ""},
    {"processor.max_pixels", "", "", ""},
};

constexpr const char* kOtherRecipe = "settings of a recipe that is not supported yet";

constexpr Gap kAutoGaps[] = {
    {"distributed.dp_replicate_size", "1", Effect::more, "copies of the shards: each GPU has more of the weights"},
    {"distributed.tp_plan", "", Effect::either, "which weights tensor parallelism cuts"},
    {"distributed.sequence_parallel", "", Effect::less, "each GPU has norms' activations of a part of the sequence"},
    {"distributed.enable_async_tensor_parallel", "", Effect::either, "communication of tensor parallelism in parts"},
    {"distributed.enable_compile", "", Effect::either, "fused kernels keep fewer activations for backward"},
    {"distributed.enable_fsdp2_prefetch", "", Effect::more, "FSDP gathers several layers ahead"},
    {"distributed.defer_fsdp_grad_sync", "true", Effect::less, "gradients are reduced after each micro-batch"},
    {"distributed.activation_checkpointing_scope", "\"all\"", Effect::more, "only some layers are checkpointed"},
    {"distributed.multimodal", "", Effect::either, "how towers that do not train are sharded"},
    {"distributed.mp_policy.output_dtype", "", Effect::more, "outputs of layers and logits in another type"},
    {"distributed.moe", "", Effect::either, "how experts are sharded and checkpointed"},
    {"parallelizer", "", Effect::either, "a parallelizer of its own, of an earlier version"},
    {"distributed_config", "", Effect::either, "options of FSDP, of an earlier version"},
    {"autocast.enabled", "", Effect::either, "autocast around forward"},
    {"model.num_hidden_layers", "", Effect::either, "another configuration of the model"},
    {"model.num_nextn_predict_layers", "0", Effect::either, "layers that predict further tokens"},
    {"model.mtp_use_repeated_layer", "", Effect::less, "layers that predict further tokens share their weights"},
    {"model.text_config.num_mtp_modules", "0", Effect::either, "layers that predict further tokens"},
    {"model.output_hidden_states", "", Effect::more, "the model returns what each layer returned"},
    {"model.text_config.output_hidden_states", "", Effect::more, "the model returns what each layer returned"},
    {"model.text_config.cp_full_attn_backend", "", Effect::either, "attention by another kernel"},
    {"model.router_aux_loss_coef", "", Effect::more, "the router's logits of all layers are kept for the loss"},
    {"model.freeze_router", "", Effect::less, "the router does not train"},
    {"model.drafter_path", "", Effect::more, "a small second model that trains with it"},
    {"model.backend.linear", "\"torch\"", Effect::either, "linear layers of Transformer Engine"},
    {"model.backend.rms_norm", "\"torch_fp32\"", Effect::either, "norms of other kernels"},
    {"model.backend.rope", "\"torch\"", Effect::either, "rotary embedding by another kernel"},
    {"model.backend.fused_rope", "", Effect::less, "rotary embedding in one kernel"},
    {"model.backend.fused_swiglu", "", Effect::less, "activation and product of the MLP in one kernel"},
    {"model.backend.experts", "\"torch\"", Effect::either, "how experts are computed"},
    {"model.backend.dispatcher", "\"torch\"", Effect::more, "buffers that send tokens to their experts' GPUs"},
    {"model.backend.gate_precision", "", Effect::more, "the router computes in this type"},
    {"model.backend.enable_fsdp_optimizations", "", Effect::more,
     "FSDP keeps gradients and weights between micro-batches"},
    {"model.backend.te_fp8.recipe", "", Effect::either, "products in fp8"},
    {"model.backend.compile_attn", "", Effect::either, "a compiled attention"},
    {"model.use_sdpa_patching", "true", Effect::either, "which kernel of SDPA runs"},
    {"sdpa_method", "", Effect::either, "which kernel of SDPA runs"},
    {"loss_fn.fp32_upcast", "true", Effect::less, "logits are not converted to float32"},
    {"loss_fn.logit_softcapping", "0", Effect::more, "logits that are capped"},
    {"optimizer.param_group_overrides", "", Effect::either, "parameter groups of their own"},
    {"peft.expert_weight_format", "\"unquantized\"", Effect::less, "experts that do not train in four bits"},
    {"packed_sequence.attn_implementation", "", Effect::either, "attention of packed samples"},
    {"packed_sequence.collate_max_length", "", Effect::either, "rows are padded to this length"},
    {"freeze_config.freeze_audio_tower", "", Effect::less, "a tower of sound does not train"},
    {"freeze_config.freeze_video_embedder", "", Effect::less, "the embedding of videos does not train"},
    {"freeze_config.freeze_modules", "", Effect::less, "these modules do not train"},
    {"freeze_config.unfreeze_modules", "", Effect::more, "these modules train"},
    {"qat.enabled", "", Effect::more, "weights as they would be quantized, beside their own"},
    {"neftune", "", Effect::more, "noise of the size of the token embeddings' output"},
    {"ema", "", Effect::more, "a mean of the weights"},
    {"domain_mixture", "", Effect::more, "a weight of each token in the loss"},
    {"tool_call_eval", "", Effect::more, "an evaluation that generates"},
    {"processor.video_processor", "", Effect::either, "how many frames a video has and how large they are"},
    {"teacher_model", "", Effect::more, "a second model whose logits are compared"},
    {"teacher_distributed", "", Effect::either, kOtherRecipe},
    {"separate_meshes", "", Effect::either, kOtherRecipe},
    {"offload_teacher_model", "", Effect::less, "the teacher is in host memory between its turns"},
    {"kd_loss_fn", "", Effect::either, kOtherRecipe},
    {"recipe_args", "", Effect::either, kOtherRecipe},
    {"dllm", "", Effect::either, kOtherRecipe},
    {"dflash", "", Effect::either, kOtherRecipe},
    {"distill_loss", "", Effect::either, kOtherRecipe},
    {"infonce_distill_loss", "", Effect::either, kOtherRecipe},
    {"mse_loss", "", Effect::either, kOtherRecipe},
    {"embedding_row_repair", "", Effect::either, "rows of the embeddings that are made anew"},
    {"magi", "", Effect::either, "attention of MagiAttention over several GPUs"},
};

/// Sections and keys that change no memory. Of the datasets only the lengths matter.
constexpr std::string_view kAutoHarmless =
    "dist_env rng seed ci wandb mlflow comet lr_scheduler checkpoint benchmark skypilot slurm launcher nvtx prewarm "
    "mfu "
    "moe_metrics tokenizer best_metric_key longalign kd_ratio temperature distill_loss_weight mse_loss_weight "
    "nce_distill_loss_weight validation_dataset _validation_dataset _validation_dataloader autopipeline "
    "distributed.pipeline distributed._target_ distributed.timeout_minutes distributed.patch_is_packed_sequence "
    "distributed.fsdp2_backward_prefetch_depth distributed.fsdp2_forward_prefetch_depth distributed.mp_policy._target_ "
    "distributed.mp_policy.cast_forward_inputs distributed.offload_policy distributed.pin_memory autocast.dtype "
    // read by no version from 0.4.0 on (components/utils/model_utils.py: apply_parameter_freezing); 0.7.0 refuses it
    "freeze_config.freeze_embeddings "
    // set to false whatever it says (components/models/common/utils.py: BackendConfig.__post_init__)
    "model.backend.rope_fusion "
    "model.trust_remote_code model.revision model.load_base_model model.backend._target_ "
    "model.backend.dispatcher_num_sms model.backend.enable_hf_state_dict_adapter model.backend.fake_balanced_gate "
    "model.backend.te_fp8._target_ model.drafter_loss_weight model.drafter_num_steps model.mtp_loss_scaling_factor "
    "model.text_config.mtp_expert_hf_layout "
    "step_scheduler.ckpt_every_steps step_scheduler.val_every_steps step_scheduler.max_steps step_scheduler.num_epochs "
    "step_scheduler.gc_every_steps step_scheduler.log_remote_every_steps step_scheduler.loss_average_window_steps "
    "step_scheduler.save_checkpoint_every_epoch step_scheduler.validate_on_checkpoint step_scheduler.start_step "
    "step_scheduler.start_epoch step_scheduler.preemption_signal "
    "loss_fn.ignore_index loss_fn.reduction loss_fn.chunk_len loss_fn.compile loss_fn.impl "
    "optimizer.lr optimizer.betas optimizer.eps optimizer.min_lr_ratio optimizer.warmup_ratio optimizer.adam_w_mode "
    "optimizer.bias_correction optimizer.compress_state_dict clip_grad_norm.backend "
    "peft.moe_rank_scaling peft.lora_A_init quantization.bnb_4bit_quant_storage "
    "packed_sequence.packing_format packed_sequence.packing_strategy packed_sequence.packing_ratio "
    "packed_sequence.drop_long_samples packed_sequence.max_packs packed_sequence.num_proc packed_sequence.pretokenize "
    "packed_sequence.split_across_pack packed_sequence.balance_media_tokens packed_sequence.post_tokenize_hook_fn "
    "compile.mode compile.fullgraph compile.dynamic compile.backend fp8.emulate fp8.enable_fsdp_float8_all_gather "
    "fp8.filter_fqns fp8.force_recompute_fp8_weight_in_bwd fp8.precompute_float8_dynamic_scale_for_fsdp "
    "fp8.recipe_name qat.qat_config qat.fake_quant_after_n_steps qat.quantizer "
    "processor._target_ processor.pretrained_model_name_or_path processor.padding_side processor.trust_remote_code";

/// Sections whose other keys say which samples there are and how they are read.
bool is_automodel_data(std::string_view key) {
  return key.starts_with("dataset") || key.starts_with("dataloader") || key.starts_with("validation_data");
}

constexpr Table kAutomodel = {"nemo-automodel 0.7.0", kAutoKeys, kAutoGaps, kAutoHarmless, is_automodel_data};

/// Architectures that run a class of Automodel's own (_transformers/registry.py: MODEL_ARCH_MAPPING), without the
/// ForCausalLM or ForConditionalGeneration behind their names.
constexpr std::string_view kOwnClasses =
    "Baichuan BailingMoeV2 DeepseekV3 DeepseekV32 DeepseekV4 DeepseekV41 Ernie4_5_Moe Glm4Moe Glm4MoeLite GlmMoeDsa "
    "Glm5Next Gemma4 Gemma4Unified Gemma4Assistant GptOss KimiK25 KimiK25VL KimiK3 KimiVL KimiLinear48B Llama "
    "MiniMaxM2 "
    "MiniMaxM3Sparse MiMoV2Flash MiMoV2 MiMoV25 Laguna Ministral3 Mistral4 Mistral3 NemotronH NemotronParse "
    "MuseGlimmer LLaVAOneVision1_5_ HYV3 HyMT2 Qwen2 Qwen3 Qwen2_5Omni Qwen3Moe Qwen3Next Qwen3_5 Qwen3OmniMoe "
    "Qwen3VLMoe Qwen3VL Qwen3_5Moe Qwen3_8_FlashNext Step3p5 Step3p6 Step3p7 Inkling "
    "NemotronH_Nano_Omni_Reasoning_V3 NemotronH_Omni_Reasoning_V3";

/// The architecture that runs such a class; "" where transformers' own runs.
std::string own_class_of(const json& config) {
  const json names = member(config, "architectures");
  if (!names.is_array() || names.empty() || !names[0].is_string()) return "";
  const std::string name = names[0];
  // A dense Mistral inside is transformers' (components/models/mistral4/model.py: supports_config).
  if (name.starts_with("Mistral3For") && member_text(member(config, "text_config"), "model_type") == "mistral")
    return "";
  const std::size_t end = std::min(name.find("ForCausalLM"), name.find("ForConditionalGeneration"));
  return is_word_of(std::string_view(name).substr(0, end), kOwnClasses) ? name : "";
}

/// Those that are modelled as its own (core/models/automodel): of rows that are not packed, whose attention would be
/// Transformer Engine's.
bool is_modelled_class(Keys& keys, const std::string& own) {
  for (const char* key : {"quantization.load_in_4bit", "quantization.load_in_8bit", "fp8.enabled", "compile.enabled"})
    if (keys.truth(key)) return false;
  const std::string attention = keys.text("model.attn_implementation");
  return is_word_of(own, "LlamaForCausalLM Qwen2ForCausalLM Qwen3ForCausalLM") &&
         (attention.empty() || attention == "sdpa") && keys.size("packed_sequence.packed_sequence_size") <= 0;
}

bool mixes_experts(const json& config) {
  for (const json& part : {config, member(config, "text_config")})
    for (const char* key : {"num_experts", "n_routed_experts", "num_local_experts"})
      if (const json count = member(part, key); count.is_number_integer() && count > 1) return true;
  return false;
}

bool attends_in_windows(const json& config) {
  if (member_text(config, "model_type").starts_with("gemma")) return true;
  for (const json& part : {config, member(config, "text_config")})
    if (member(part, "sliding_window").is_number() && member(part, "use_sliding_window") != false) return true;
  return false;
}

/// 1 where nobody says it; less than the GPUs that a job may have.
std::int64_t degree(Keys& keys, const char* name) { return std::clamp<std::int64_t>(keys.size(name), 1, 65536); }

void put_dotted(json& out, const std::string& name, const json& value) {
  if (name == "model.config" && value.is_object()) {
    // What it names is a key of its own; the rest is another configuration of it.
    json rest = value;
    for (const char* key : {"name_or_path", "pretrained_model_name_or_path"})
      if (value.contains(key)) {
        out[name + ".pretrained_model_name_or_path"] = value[key];
        rest.erase(key);
      }
    const bool is_whole =
        member_text(value, "_target_").starts_with("transformers.models.") && rest.size() == value.size();
    if (!is_whole)
      for (const char* key : {"_target_", "trust_remote_code", "_attn_implementation", "attn_implementation_new"})
        rest.erase(key);
    if (!rest.empty()) out[name] = std::move(rest);
    return;
  }
  const bool is_gap =
      std::any_of(std::begin(kAutoGaps), std::end(kAutoGaps), [&](const Gap& gap) { return gap.name == name; });
  if (!value.is_object() || value.empty() || is_gap || is_word_of(name, kAutoHarmless)) {
    // "none" is None to it (components/config/loader.py: translate_value)
    out[name] = value == "none" || value == "None" ? json() : value;
    return;
  }
  for (const auto& [key, inner] : value.items()) put_dotted(out, name + "." + key, inner);
}

void take_automodel_model(Context& context, Keys& keys) {
  const json whole = keys.value("model.config");
  const std::vector<std::string> target = split_words(member_text(whole, "_target_"), ".");
  if (target.size() > 2 && target[0] == "transformers" && target[1] == "models") {
    json config = whole;  // transformers.models.qwen3_moe.configuration_qwen3_moe.Qwen3MoeConfig
    config.erase("_target_");
    config["model_type"] = target[2];
    return keys.take("model.config", "/model/config", std::move(config));
  }
  if (whole.is_string()) return context.take_model(keys, "model.config");
  if (whole.is_object()) keys.leave_out("model.config", Effect::either, "another configuration of the model");
  const bool is_config = keys.has("model.config.pretrained_model_name_or_path");
  context.take_model(keys,
                     is_config ? "model.config.pretrained_model_name_or_path" : "model.pretrained_model_name_or_path");
  if (is_config) keys.mark("model.pretrained_model_name_or_path");
}

/// Rows are as long as packing makes them, else as the dataset or the collator cuts them.
void take_automodel_samples(Keys& keys) {
  keys.take("step_scheduler.local_batch_size", "/data/micro_batch_size",
            keys.integer("step_scheduler.local_batch_size"));
  const char* length = nullptr;
  for (const char* key :
       {"packed_sequence.packed_sequence_size", "packed_sequence.pack_size", "dataset.seq_length", "dataset.seq_len",
        "dataloader.collate_fn.max_length", "packed_sequence.max_length", "dataset.max_length"}) {
    const bool is_said = keys.has(key) && keys.integer(key) > 0;
    keys.mark(key);
    if (is_said && length == nullptr) length = key;
  }
  if (length == nullptr) {
    keys.ledger().missing.push_back({"value", "dataset.seq_length", keys.file(), "dataset.seq_length",
                                     "samples are as long as the dataset has them, here as the model's usual length: "
                                     "say how long yours are (dataset.seq_length)"});
    return;
  }
  keys.take(length, "/data/sequence_length", keys.integer(length));
  if (std::string_view(length).starts_with("packed_sequence.pack"))
    keys.leave_out(length, Effect::either, "documents of a row are kept apart by attention of variable lengths");
}

void take_automodel_attention(Context& context, Keys& keys, bool is_own) {
  const bool is_packed = keys.size("packed_sequence.packed_sequence_size") > 0;
  const char* const key = is_own && keys.has("model.backend.attn") ? "model.backend.attn" : "model.attn_implementation";
  std::string name = keys.text(key);
  keys.mark("model.backend.attn"), keys.mark("model.attn_implementation");
  if (!is_own && is_packed && degree(keys, "distributed.cp_size") == 1 && !name.starts_with("flash_attention"))
    name = "flash_attention_2";  // _transformers/kernel_patches.py: _apply_preload_overrides
  if (is_word_of(member_text(context.model_config(), "model_type"), "gpt_oss deepseek_v4")) {
    // transformers has these eager, gpt_oss by flash kernels too, and so falls back (_get_next_fallback_attn).
    if (is_own)
      keys.leave_out(key, Effect::less, "attention by " + name + " is taken as eager, whose scores exist as a whole");
    context.ledger.put("/training/attention", "eager");
    return keys.note(key, "/training/attention");
  }
  if (is_word_of(name, "te flex tilelang magi ffpa flash_attention_4")) {
    keys.leave_out(key, Effect::either, "attention by " + name + " is taken as SDPA");
    context.ledger.put("/training/attention", "sdpa");
  } else {
    keys.take(key, "/training/attention", name);
  }
}

/// A class, with those of its arguments that matter; others have the class's own defaults.
void take_automodel_optimizer(Keys& keys) {
  const char* const key = keys.has("optimizer._target_") ? "optimizer._target_" : "optimizer";
  std::string name = keys.text(key);
  keys.mark("optimizer");
  if (name.empty()) return keys.mark("optimizer._target_");
  if (key == std::string_view("optimizer._target_") && name.find('.') == std::string::npos)
    return keys.refuse(key, "found " + quote(name) + "; expected a class by its path, as torch.optim.AdamW");
  keys.take(key, "/training/optimizer/name", name);
  for (const char* argument :
       {"weight_decay", "amsgrad", "foreach", "fused", "exp_avg_dtype", "exp_avg_sq_dtype", "master_weights",
        "master_weight_dtype", "store_param_remainders", "master_weight_bits", "quantize"})
    keys.take_given((std::string("optimizer.") + argument).c_str(),
                    std::string("/training/optimizer/args/") + argument);
}

/// ModuleMatcher's patterns (components/_peft/module_matcher.py) as one expression of whole paths.
std::string expression_of(const std::vector<std::string>& patterns) {
  std::string all;
  for (const std::string& pattern : patterns) {
    all += all.empty() ? "" : "|";
    if (pattern.find('*') == std::string::npos) all += "(?:.*\\.)?";
    for (const char letter : pattern)
      all += letter == '*' ? std::string(".*") : letter == '.' ? std::string("\\.") : std::string(1, letter);
  }
  return all;
}

/// Of a mixture, whose experts peft would adapt where `expression` names their projections: the layers that it names
/// beside them. Of Mamba's kin, whose output projections peft refuses and Automodel's own files exclude: the others.
/// Else the expression.
json targets_beside_experts(const Context& context, const std::string& expression) {
  json linear = context.linear_layers();
  const bool is_mixture = linear.is_array();
  if (is_word_of(member_text(context.model_config(), "model_type"), "falcon_h1 mamba2 nemotron_h"))
    linear = {"in_proj", "q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"};
  if (!linear.is_array()) return expression;
  const Result<Pattern> pattern = Pattern::parse(expression == "all-linear" ? ".*" : expression);
  json names = json::array();
  for (const json& name : linear) {
    const auto text = name.get<std::string>();
    if ((is_mixture && is_word_of(text, "gate_proj up_proj down_proj")) || !pattern) continue;
    if (pattern->matches(text) || pattern->matches("model.layers.0.self_attn." + text)) names.push_back(text);
  }
  return names.empty() ? json(expression) : names;
}

/// Whether its MLPs have silu, which a config need not say where it is the class's default.
bool has_silu(const json& config) {
  const std::string act = member_text(config, "hidden_act");
  return act == "silu" || (act.empty() && is_word_of(member_text(config, "model_type"),
                                                     "llama mistral ministral3 qwen2 qwen3 automodel_llama "
                                                     "automodel_qwen2 automodel_qwen3"));
}

/// `on_meta`: where the model is made (_transformers/auto_model.py: is_meta_device).
void take_automodel_lora(Context& context, Keys& keys, bool on_meta) {
  keys.take("peft.dim");
  keys.take("peft.alpha");
  keys.take("peft.dropout");
  std::vector<std::string> targets = keys.names("peft.target_modules");
  const std::vector<std::string> excluded = keys.names("peft.exclude_modules");
  const bool is_all = keys.truth("peft.match_all_linear") || (targets.size() == 1 && targets[0] == "*");
  const char* const said = keys.truth("peft.match_all_linear") ? "peft.match_all_linear" : "peft.target_modules";
  if (is_all || !excluded.empty()) {
    keys.take(excluded.empty() ? said : "peft.exclude_modules", "/training/lora/target_modules",
              targets_beside_experts(context, "all-linear"));
    if (!excluded.empty())
      keys.leave_out("peft.exclude_modules", Effect::less,
                     "these layers have no adapters; here all linear layers have");
    keys.leave_out(said, Effect::more, "the head has an adapter too, unless it is excluded");
  } else {
    if (targets.empty()) targets = {"*_proj"};
    keys.take("peft.target_modules", "/training/lora/target_modules",
              targets_beside_experts(context, expression_of(targets)));
  }
  if (mixes_experts(context.model_config()))
    keys.leave_out("peft.target_modules", Effect::more,
                   "experts, and those that all tokens get, have adapters where their projections are among these");
  keys.take("peft.use_dora", "/training/lora/use_dora", keys.truth("peft.use_dora"));
  // Adapters have the type of the layer that they are on (LinearLoRA._init_adapter).
  if (keys.has("peft.lora_dtype"))
    keys.leave_out("peft.lora_dtype", Effect::either, "adapters of this type; here they have the weights' type");
  keys.take("peft.lora_dtype", "/training/lora/autocast_adapter_dtype", false);
  const json dropout = keys.value("peft.dropout");
  const bool drops = dropout.is_number() && dropout > 0;
  const char* const kTriton = "peft.use_triton";
  const bool by_triton = keys.truth(kTriton);
  if (keys.truth("peft.use_memory_efficient_lora")) {
    const json& config = context.model_config();
    const bool is_modelled = !drops && !keys.truth("peft.use_dora") && !mixes_experts(config) &&
                             member(config, "vision_config").is_null() && has_silu(config) &&
                             !keys.truth("quantization.load_in_4bit") && !keys.truth("quantization.load_in_8bit");
    if (is_modelled) {
      keys.take("peft.use_memory_efficient_lora", "/training/loop/lora_function",
                std::string(by_triton ? "automodel-triton" : "automodel") + (on_meta ? "" : "-mlp"));
      keys.note(kTriton, "/training/loop/lora_function");
    } else {
      keys.mark(kTriton);
      keys.leave_out("peft.use_memory_efficient_lora", Effect::less,
                     "adapters keep their input alone, and compute what A returns again in backward");
    }
  } else if (by_triton) {
    keys.leave_out(kTriton, Effect::less, "adapters by a kernel of its own");
  }
  if (keys.text("peft.dropout_position") == "post" && drops)
    keys.leave_out("peft.dropout_position", Effect::less, "dropout acts on what an adapter returns, not on its input");
}

void take_automodel_quantization(Context& context, Keys& keys) {
  if (keys.truth("quantization.load_in_4bit")) {
    keys.take("quantization.load_in_4bit", "/training/quantization/load_in_4bit", true);
    keys.take("quantization.bnb_4bit_quant_type");
    keys.take("quantization.bnb_4bit_use_double_quant");
    const std::string compute = dtype_of(keys.text("quantization.bnb_4bit_compute_dtype"));
    keys.take("quantization.bnb_4bit_compute_dtype", "/training/quantization/bnb_4bit_compute_dtype",
              compute == "fp16"   ? "float16"
              : compute == "fp32" ? "float32"
                                  : "bfloat16");
    context.ledger.put("/training/quantization/prepare_model_for_kbit_training", false);
  } else if (keys.truth("quantization.load_in_8bit")) {
    keys.take("quantization.load_in_8bit", "/training/quantization/load_in_8bit", true);
  }
}

/// _freeze_module_by_attribute_and_patterns: modules whose names have these words. Only a file with the section
/// freezes.
void take_automodel_freezing(Context& context, Keys& keys, bool has_adapters) {
  constexpr const char* kTower = "freeze_config.freeze_vision_tower";
  constexpr const char* kLanguage = "freeze_config.freeze_language_model";
  const bool has_section = keys.has(kTower) || keys.has(kLanguage) || keys.has("freeze_config.freeze_embeddings") ||
                           keys.has("freeze_config.freeze_audio_tower");
  const json& config = context.model_config();
  if (config.is_object() && member(config, "audio_config").is_null() &&
      member(member(config, "vision_config"), "audio_config").is_null())
    keys.ignore("freeze_config.freeze_audio_tower");  // there is none
  if (!has_section || !config.is_object() || member(config, "vision_config").is_null()) {
    keys.mark(kTower);
    return keys.mark(kLanguage);
  }
  std::vector<std::string> frozen;
  if (keys.truth(kTower))
    frozen.emplace_back(member_text(config, "model_type").starts_with("qwen") ? "visual" : "vision_tower");
  if (keys.truth(kLanguage)) frozen.emplace_back("language_model");
  if (frozen.empty()) return;
  const char* const key = keys.truth(kTower) ? kTower : kLanguage;
  if (has_adapters) return keys.leave_out(key, Effect::less, "adapters of these modules do not train");
  keys.take(key, "/training/freeze", frozen);
  context.ledger.put("/training/stage", "custom");
}

/// What other losses than MaskedCrossEntropy leave out of the logits.
void take_automodel_loss(Context& context, Keys& keys) {
  const std::string name = keys.text("loss_fn._target_");
  const std::string loss = name.substr(name.find_last_of('.') + 1);
  if (loss.empty() || loss == "MaskedCrossEntropy") return;
  std::optional<std::int64_t> bytes;
  const json vocabulary = member(context.model_config(), "vocab_size");
  const json data = member(context.ledger.job, "data");
  const json length = member(data, "sequence_length"), rows = member(data, "micro_batch_size");
  if (loss == "FusedLinearCrossEntropy" && vocabulary.is_number_integer() && length.is_number_integer() &&
      rows.is_number_integer() && vocabulary > 0 && vocabulary < 1 << 24 && length > 0 && length < 1 << 24 &&
      rows > 0 && rows < 1 << 10)
    bytes = 12 * vocabulary.get<std::int64_t>() * length.get<std::int64_t>() * rows.get<std::int64_t>();
  if (is_word_of(loss, "FusedLinearCrossEntropy ChunkedCrossEntropy"))
    keys.leave_out("loss_fn._target_", Effect::less, "the logits never exist as a whole, up to", bytes);
  else if (loss == "TEParallelCrossEntropy")
    keys.leave_out("loss_fn._target_", Effect::less, "the gradient of the logits takes their place");
  else
    keys.leave_out("loss_fn._target_", Effect::either,
                   "a loss of its own, in the place of cross-entropy of the logits");
}

/// FSDP2 or DDP over all GPUs, and the precision, which FSDP2 decides. One GPU has neither (components/distributed/
/// fsdp2.py: fsdp2_sharding_enabled).
void take_automodel_parallel(Context& context, Keys& keys, const std::string& weights, const char* weights_key,
                             bool has_own_parallelizer) {
  const std::int64_t others =
      degree(keys, "distributed.tp_size") * degree(keys, "distributed.cp_size") * degree(keys, "distributed.pp_size");
  constexpr std::pair<const char*, const char*> kDegrees[] = {
      {"distributed.tp_size", "each GPU has a part of each weight"},
      {"distributed.cp_size", "each GPU has a part of the sequence"},
      {"distributed.pp_size", "each GPU has some of the layers"},
      {"distributed.ep_size", "each GPU has some of the experts, which are not gathered"}};
  for (const auto& [key, text] : kDegrees)
    if (degree(keys, key) > 1) keys.leave_out(key, Effect::less, text);
  Launch& launch = context.launch;
  if (launch.gpus == 0 && keys.has("distributed.dp_size")) {
    launch.gpus =
        std::min<std::int64_t>(degree(keys, "distributed.dp_size") * std::min<std::int64_t>(others, 65536), 65536);
    launch.file = keys.file(), launch.key = "distributed.dp_size";
  }
  keys.mark("distributed.dp_size");
  if (launch.gpus > 1) launch.gpus = std::max<std::int64_t>(launch.gpus / others, 1);
  const std::int64_t step =
      std::max<std::int64_t>(keys.size("step_scheduler.local_batch_size"), 1) * std::max<std::int64_t>(launch.gpus, 1);
  keys.take("step_scheduler.global_batch_size", "/training/gradient_accumulation_steps",
            std::max<std::int64_t>(keys.size("step_scheduler.global_batch_size") / step, 1));
  // Without FSDP these say nothing (components/moe/fsdp_mixin.py: _iter_fsdp_modules).
  if (launch.gpus <= 1)
    for (const char* key : {"model.backend.enable_fsdp_optimizations", "distributed.enable_fsdp2_prefetch",
                            "distributed.defer_fsdp_grad_sync"})
      keys.ignore(key);
  const std::string strategy = lower_case(keys.text("distributed.strategy"));
  context.take_precision(keys, weights_key, weights, "distributed.autocast_dtype",
                         dtype_of(keys.text("distributed.autocast_dtype")));
  if (is_word_of(strategy, "megatron_fsdp megatron-fsdp mfsdp"))
    return keys.refuse("distributed.strategy", "Megatron-FSDP is not supported yet; expected fsdp2 or ddp");
  if (strategy != "fsdp2" && strategy != "ddp")
    return keys.refuse("distributed.strategy", "found " + quote(strategy) + "; expected fsdp2, megatron_fsdp or ddp");
  take_gpus(context, strategy.c_str());
  constexpr const char* kPolicies[] = {"distributed.mp_policy.param_dtype", "distributed.mp_policy.reduce_dtype",
                                       "distributed.reshard_after_forward", "distributed.offload_policy._target_"};
  constexpr const char* kDdpOptions[] = {"distributed.bucket_cap_mb", "distributed.broadcast_buffers",
                                         "distributed.find_unused_parameters", "distributed.static_graph",
                                         "distributed.gradient_as_bucket_view"};
  if (launch.gpus <= 1 || strategy == "ddp") {
    for (const char* key : kPolicies) keys.mark(key);
    if (launch.gpus > 1) {
      keys.take("distributed.strategy", "/parallel/strategy", "ddp");
      for (const char* key : kDdpOptions) keys.take(key);
    }
    return;
  }
  keys.take("distributed.strategy", "/parallel/strategy", "fsdp2");
  const std::string compute = dtype_of(keys.text(kPolicies[0])), reduce = dtype_of(keys.text(kPolicies[1]));
  if (compute != weights) keys.take(kPolicies[0], "/parallel/fsdp/param_dtype", compute);
  if (!reduce.empty()) keys.take(kPolicies[1], "/parallel/fsdp/reduce_dtype", reduce);
  if (keys.has(kPolicies[2])) keys.take(kPolicies[2], "/parallel/fsdp/reshard_after_forward", keys.truth(kPolicies[2]));
  if (keys.has(kPolicies[3])) keys.take(kPolicies[3], "/parallel/fsdp/cpu_offload", true);
  // components/distributed/parallelizer.py: apply_fsdp2_sharding_recursively
  if (has_own_parallelizer || !member(context.model_config(), "vision_config").is_null())
    return keys.leave_out("distributed.strategy", Effect::either,
                          std::string("embeddings and a head of its own are gathered apart from the rest") +
                              (keys.has(kPolicies[2]) ? "" : ", and the last layer stays gathered after forward"));
  context.ledger.put("/parallel/fsdp/preparer", "automodel");
  if (keys.has(kPolicies[2]) && keys.truth(kPolicies[2]))
    keys.leave_out(kPolicies[2], Effect::less, "the last layer goes after forward, too; here it stays gathered");
}

/// Blocks as a whole where transformers' language models run, on one GPU too.
void take_automodel_checkpointing(const Context& context, Keys& keys, bool is_own) {
  constexpr const char* kKey = "distributed.activation_checkpointing";
  const json said = keys.value(kKey);
  const std::string word = said.is_string() ? lower_case(said.get<std::string>()) : "";
  const bool is_selective = word == "selective";
  const bool is_on = is_selective || word == "full" || word == "enabled" || (word != "disabled" && keys.truth(kKey));
  keys.take(kKey, "/training/activation_checkpointing", is_on ? "non-reentrant" : "none");
  if (is_selective)
    keys.leave_out(kKey, Effect::more, "products and attention of a block are kept, not computed again");
  // components/distributed/parallelizer.py: _should_use_hf_native_gradient_checkpointing, apply_submodule_checkpointing
  if (is_on && !is_selective && (is_own || !member(context.model_config(), "vision_config").is_null()))
    keys.leave_out(kKey, Effect::more,
                   "attention, MLP and norms of a block are checkpointed apart, and keep their inputs");
}

}  // namespace

bool is_automodel(const json& tree) {
  if (!tree.is_object()) return false;
  const json recipe = member(tree, "recipe");
  const std::string target = member_text(recipe, "_target_"), model = member_text(member(tree, "model"), "_target_");
  return tree.contains("step_scheduler") || target.starts_with("nemo_automodel.") ||
         model.starts_with("nemo_automodel.") ||
         (recipe.is_string() && (tree.contains("dist_env") || tree.contains("recipe_args")));
}

json dotted_automodel(const json& tree) {
  json out = json::object();
  for (const auto& [name, value] : tree.items()) put_dotted(out, name, value);
  return out;
}

void read_automodel(Context& context, Keys& keys) {
  keys.know(kAutomodel);
  context.ledger.trainer = kAutomodel.project;
  const char* const recipe_key = keys.has("recipe._target_") ? "recipe._target_" : "recipe";
  const std::string path = keys.text(recipe_key);
  const std::string recipe = path.substr(path.find_last_of('.') + 1);
  // Without one the command line of an earlier version says which (automodel finetune llm).
  if (!recipe.empty() && !is_word_of(recipe,
                                     "TrainFinetuneRecipeForNextTokenPrediction FinetuneRecipeForVLM "
                                     "BenchmarkingRecipeForNextTokenPrediction"))
    keys.refuse(recipe_key, "found " + quote(recipe) +
                                ", which is not supported yet; expected TrainFinetuneRecipeForNextTokenPrediction, "
                                "FinetuneRecipeForVLM or BenchmarkingRecipeForNextTokenPrediction");
  const std::string target = keys.text("model._target_");
  if (!target.empty() && target.find("NeMoAutoModelFor") == std::string::npos)
    keys.refuse("model._target_", "found " + quote(target) +
                                      ", which is not supported yet; expected a model of NeMoAutoModelForCausalLM or "
                                      "NeMoAutoModelForImageTextToText");
  take_automodel_model(context, keys);
  const std::string own = keys.truth("model.force_hf") ? "" : own_class_of(context.model_config());
  const bool is_modelled = is_modelled_class(keys, own), is_other = !own.empty() && !is_modelled;
  const json& job = context.ledger.job;
  if (is_modelled) {
    json config = context.model_config();
    config["model_type"] = "automodel_" + member_text(config, "model_type");
    json model = member(job, "model");
    if (model.is_object() && model.contains("preset")) model = {{"name", model["preset"]}};  // which is transformers'
    context.ledger.put("/model", std::move(model));
    context.ledger.put("/model/config", std::move(config));
    for (Taken& taken : context.ledger.taken)
      if (taken.pointer == "/model/preset") taken.pointer = "/model/name";
  }
  if (!is_other) context.ledger.put("/training/loop", {{"name", "step"}, {"project", "automodel"}});
  if (is_other)
    keys.leave_out("model._target_", Effect::either,
                   own +
                       " is a class of Automodel's own, which keeps other activations than transformers', which is "
                       "taken here; force_hf: true runs transformers'");
  const char* const weights_key = keys.has("model.dtype") ? "model.dtype" : "model.torch_dtype";
  keys.mark("model.torch_dtype");
  std::string weights = dtype_of(keys.text(weights_key));
  // "auto": as published; a model that is made anew: bf16
  if (weights.empty()) weights = target.ends_with("from_config") ? "bf16" : context.published_dtype(keys);
  take_automodel_samples(keys);
  take_automodel_attention(context, keys, is_other);
  take_automodel_parallel(context, keys, weights, weights_key, is_other);
  const bool is_ddp = lower_case(keys.text("distributed.strategy")) == "ddp";
  take_automodel_checkpointing(context, keys, is_other || (!is_modelled && is_ddp && context.launch.gpus > 1));
  keys.take("clip_grad_norm.max_norm");
  take_automodel_optimizer(keys);
  const bool has_adapters = keys.has("peft._target_") || keys.has("peft.dim") || keys.has("peft.target_modules");
  if (has_adapters) {
    keys.note("peft._target_", "/training/lora");
    const bool is_sharded = member_text(member(job, "parallel"), "strategy") == "fsdp2";
    take_automodel_lora(context, keys, !is_ddp && (is_modelled || is_sharded));
    take_automodel_quantization(context, keys);
  } else {
    context.ledger.put("/training/stage", "full");
  }
  take_automodel_freezing(context, keys, has_adapters);
  take_automodel_loss(context, keys);
  for (const char* key : {"compile.enabled", "fp8.enabled"})
    if (keys.truth(key)) keys.take(key);
  if (!is_other && context.model_config().is_object()) {
    // What is called is the model's forward, without use_cache=False.
    const bool caches = keys.truth("model.text_config.use_cache");
    if (caches && attends_in_windows(context.model_config()))
      keys.leave_out("model.text_config.use_cache", Effect::more, "forward returns keys and values too, of windows");
    else
      keys.take("model.text_config.use_cache", "/training/use_cache", caches);
    if (is_modelled) keys.mark("model.use_liger_kernel");
    if (!is_modelled && keys.truth("model.use_liger_kernel") &&
        degree(keys, "distributed.tp_size") * degree(keys, "distributed.cp_size") == 1) {
      if (keys.has("model.use_liger_kernel"))  // its loss is not the model's
        keys.take("model.use_liger_kernel", "/training/liger", {{"fused_linear_cross_entropy", false}});
      else
        keys.leave_out("model.use_liger_kernel", Effect::less, "where liger-kernel is installed its kernels run");
    }
  } else {
    keys.mark("model.text_config.use_cache"), keys.mark("model.use_liger_kernel");
  }
  const bool sees_pixels = member_text(context.model_config(), "model_type").starts_with("qwen") &&
                           !member(context.model_config(), "vision_config").is_null();
  for (const char* key : {"processor.min_pixels", "processor.max_pixels"})
    if (sees_pixels)
      keys.take_given(key, std::string("/data/") + (key + 10));
    else if (keys.has(key))
      keys.leave_out(key, Effect::either, "how large images are");
  if (keys.size("validation_dataloader.batch_size") > keys.size("step_scheduler.local_batch_size"))
    keys.leave_out("validation_dataloader.batch_size", Effect::more, "batches of an evaluation are larger");
}

}  // namespace oometer::importers
