#include "importers/swift/swift.h"

#include <algorithm>

#include "config/reader.h"
#include "importers/transformers/training_arguments.h"

namespace oometer::importers {

using nlohmann::json;

namespace {

constexpr const char* kTuner = "arguments/tuner_args.py: TunerArguments";
constexpr const char* kTrain = "trainers/arguments.py: TrainArgumentsMixin";
constexpr const char* kBase = "arguments/base_args/base_args.py: BaseArguments";
constexpr const char* kModelArgs = "arguments/base_args/model_args.py: ModelArguments";
constexpr const char* kQuantArgs = "arguments/base_args/quant_args.py: QuantizeArguments";

constexpr Key kSwiftKeys[] = {
    {"model", "", kModelArgs, ""},
    {"model_id_or_path", "", kModelArgs, ""},                                         // until 3.0
    {"torch_dtype", "", "arguments/base_args/model_args.py: _init_torch_dtype", ""},  // of config.json
    {"bf16", "", "arguments/base_args/model_args.py: _init_mixed_precision", ""},     // as torch_dtype
    {"fp16", "", "arguments/base_args/model_args.py: _init_mixed_precision", ""},
    {"attn_impl", "\"sdpa\"", kModelArgs, ""},
    {"tuner_type", "\"lora\"", kBase, ""},
    {"train_type", "", kBase, ""},  // its name until 4.0
    {"sft_type", "", kBase, ""},    // its name until 3.0
    {"max_length", "", "arguments/base_args/template_args.py: TemplateArguments", "/data/sequence_length"},
    {"packing", "false", kBase, ""},
    {"padding_free", "false", "arguments/base_args/template_args.py: TemplateArguments", ""},
    {"per_device_train_batch_size", "1", kTrain, "/data/micro_batch_size"},
    {"per_device_eval_batch_size", "1", kTrain, ""},
    {"gradient_accumulation_steps", "", "trainers/arguments.py: __post_init__", ""},  // a batch of 16
    {"gradient_checkpointing", "true", kTrain, ""},
    {"gradient_checkpointing_kwargs", "", "trainers/mixin.py: use_reentrant but under DDP", ""},
    {"vit_gradient_checkpointing", "", "arguments/sft_args.py: SftArguments", ""},
    {"weight_decay", "0.1", kTrain, ""},
    {"lora_rank", "8", kTuner, "/training/lora/rank"},
    {"lora_alpha", "32", kTuner, "/training/lora/alpha"},
    {"lora_dropout", "0.05", kTuner, "/training/lora/dropout"},
    {"lora_bias", "\"none\"", kTuner, "/training/lora/bias"},
    {"target_modules", "\"all-linear\"", kTuner, ""},
    {"target_parameters", "", kTuner, ""},
    {"target_regex", "", kTuner, ""},
    {"modules_to_save", "", kTuner, ""},
    {"use_rslora", "false", kTuner, ""},
    {"use_dora", "false", kTuner, ""},
    {"freeze_llm", "false", kTuner, ""},
    {"freeze_vit", "true", kTuner, ""},
    {"freeze_aligner", "true", kTuner, ""},
    {"quant_method", "", kQuantArgs, ""},
    {"quant_bits", "", kQuantArgs, ""},
    {"quantization_bit", "", kQuantArgs, ""},  // its name until 3.0, with bnb as the method
    {"use_flash_attn", "", kModelArgs, ""},    // until 3.0
    {"bnb_4bit_compute_dtype", "", "arguments/base_args/quant_args.py: _init_bnb", ""},  // as torch_dtype
    {"bnb_4bit_quant_type", "\"nf4\"", kQuantArgs, "/training/quantization/bnb_4bit_quant_type"},
    {"bnb_4bit_use_double_quant", "true", kQuantArgs, "/training/quantization/bnb_4bit_use_double_quant"},
    {"max_pixels", "", "arguments/base_args/template_args.py: TemplateArguments", ""},
    {"use_logits_to_keep", "", "trainers/mixin.py: get_use_logits_to_keep", ""},
    {"val_dataset", "", "arguments/base_args/data_args.py: DataArguments", ""},
    {"split_dataset_ratio", "0.0", "arguments/base_args/data_args.py: DataArguments", ""},
    {"rlhf_type", "", "arguments/rlhf_args.py: RLHFArguments", ""},
    {"task_type", "", kModelArgs, ""},
};

constexpr Gap kSwiftGaps[] = {
    {"adapters", "", Effect::either, "adapters that are loaded have the rank and layers of their own file"},
    {"freeze_parameters", "", Effect::less, "these parameters do not train"},
    {"freeze_parameters_regex", "", Effect::less, "these parameters do not train"},
    {"freeze_parameters_ratio", "0", Effect::less, "the first parameters do not train"},
    {"trainable_parameters", "", Effect::more, "these parameters train too"},
    {"trainable_parameters_regex", "", Effect::more, "these parameters train too"},
    {"lora_dtype", "", Effect::either, "the adapters' own type"},
    {"lorap_lr_ratio", "", Effect::either, "parameter groups of their own for B"},
    {"init_weights", "true", Effect::either, "how adapters are made"},
    {"optimizer", "", Effect::either, "an optimizer of ms-swift's own"},
    {"use_galore", "", Effect::less, "optimizer states of projected gradients"},
    {"lisa_activated_layers", "0", Effect::less, "only some layers train at a time"},
    {"aligner_lr", "", Effect::either, "parameter groups of their own"},
    {"vit_lr", "", Effect::either, "parameter groups of their own"},
    {"enable_dft_loss", "", Effect::more, "a loss of its own, from the logits"},
    {"enable_channel_loss", "", Effect::more, "the loss of each channel"},
    {"loss_type", "", Effect::either, "another loss"},
    {"loss_scale", "\"default\"", Effect::more, "weights of tokens in the loss"},
    {"router_aux_loss_coef", "0", Effect::more, "the router's logits of all layers are kept for the loss"},
    {"sequence_parallel_size", "1", Effect::less, "each GPU has a part of the sequence"},
    {"deepspeed_autotp_size", "1", Effect::less, "each GPU has a part of each weight"},
    {"zero_hpz_partition_size", "", Effect::more, "ZeRO++ keeps a second copy within a node"},
    {"tuner_backend", "\"peft\"", Effect::less, "Unsloth's kernels and checkpoints"},
    {"use_unsloth", "", Effect::less, "Unsloth's kernels and checkpoints"},
    {"rope_scaling", "", Effect::either, "rotary tables of longer sequences"},
    {"new_special_tokens", "", Effect::more, "rows of the embeddings and of the head for new tokens"},
    {"device_map", "", Effect::either, "where the weights are put"},
    {"max_memory", "", Effect::either, "where the weights are put"},
    {"experts_impl", "\"grouped_mm\"", Effect::either, "how experts are computed"},
    {"vit_gradient_checkpointing", "", Effect::either, "checkpoints in the tower alone"},
    {"callbacks", "", Effect::either, "what these do"},
    {"early_stop_interval", "", Effect::either, "fewer steps"},
    {"eval_use_evalscope", "", Effect::more, "an evaluation that generates"},
    {"use_flash_ckpt", "", Effect::either, "checkpoints by way of host memory"},
    {"model_kwargs", "", Effect::either, "what the model is loaded with"},
    {"hqq_axis", "", Effect::either, "HQQ"},
    {"packing_length", "", Effect::either, "rows of another length than max_length"},
};

constexpr std::string_view kSwiftHarmless =
    "model_type model_revision template system truncation_strategy agent_template norm_bbox use_chat_template "
    "padding_side is_binary_loss_scale template_backend response_prefix enable_thinking preserve_thinking "
    "add_non_thinking_prefix disable_ignore_empty_think dataset cached_dataset cached_val_dataset dataset_num_proc "
    "load_from_cache_file dataset_shuffle val_dataset_shuffle streaming interleave_prob stopping_strategy "
    "shuffle_buffer_size download_mode columns strict disable_auto_column_mapping model_name model_author "
    "custom_dataset_info max_new_tokens temperature top_k top_p repetition_penalty num_beams stream stop_words "
    "logprobs "
    "top_logprobs external_plugins custom_register_path enable_npu_model_patch load_args load_data_args "
    "packing_num_proc packing_strategy lazy_tokenize use_hf hub_token ignore_args_error use_swift_lora add_version "
    "create_checkpoint_symlink safe_serialization max_shard_size check_model acc_strategy train_dataloader_shuffle "
    "max_epochs ds3_gather_for_generation resume_only_model mrl_dims eval_metric eval_dataset eval_dataset_args "
    "eval_limit eval_generation_config extra_eval_args galore_target_modules galore_rank galore_update_proj_gap "
    "galore_scale galore_proj_type galore_optim_per_parameter galore_with_embedding galore_quantization "
    "galore_proj_quant galore_proj_bits galore_proj_group_size galore_cos_threshold galore_gamma_proj "
    "galore_queue_size lisa_step_interval logging_dir swanlab_token swanlab_project swanlab_workspace "
    "swanlab_exp_name swanlab_notification_method swanlab_webhook_url swanlab_secret swanlab_mode "
    "local_repo_path num_labels problem_type max_model_len bnb_4bit_quant_storage lora_ga_batch_size lora_ga_iters "
    "lora_ga_max_length lora_ga_direction lora_ga_scale lora_ga_stable_gamma attn_implementation save_on_each_node "
    "decision_drop_instructions decision_subsample_options decision_state_as_text decision_shuffle_fields "
    "init_strategy "
    // until 3.0
    "template_type train_dataset_sample val_dataset_sample train_dataset_mix_ratio custom_train_dataset_path "
    "custom_val_dataset_path check_dataset_strategy self_cognition_sample model_cache_dir dataset_test_ratio "
    "save_only_model preprocess_num_proc dataset_seed "
    "swanlab_sender_email swanlab_receiver_email swanlab_smtp_server swanlab_smtp_port "
    "swanlab_email_language "
    // of a tuner, where that one is named
    "adalora_beta1 adalora_beta2 adalora_deltaT adalora_init_r adalora_orth_reg_weight adalora_target_r "
    "adalora_tfinal adalora_tinit adapter_act adapter_length boft_block_num boft_block_size boft_dropout "
    "boft_n_butterfly_factor fourier_n_frequency fourier_scaling llamapro_num_groups llamapro_num_new_blocks "
    "reft_args reft_intervention_type reft_layer_key reft_layers reft_rank vera_d_initial vera_dropout "
    "vera_projection_prng_key vera_rank";

/// Of `swift rlhf` alone, which is refused.
constexpr std::string_view kSwiftPreferences =
    "ref_model ref_adapters ref_model_type ref_model_revision beta label_smoothing max_completion_length rpo_alpha "
    "ld_alpha discopop_tau loss_weights cpo_alpha simpo_gamma desirable_weight undesirable_weight "
    "center_rewards_coefficient sft_alpha lmbda seq_kd gkd_logits_topk reward_model reward_adapters "
    "reward_model_type reward_model_revision reward_template num_ppo_epochs whiten_rewards kl_coef cliprange "
    "vf_coef cliprange_value gamma lam num_mini_batches local_rollout_forward_batch_size num_sample_generations "
    "response_length missing_eos_penalty num_generations reward_funcs reward_weights log_completions num_iterations "
    "epsilon epsilon_high delta cosine_min_len_value_wrong cosine_max_len_value_wrong cosine_min_len_value_correct "
    "cosine_max_len_value_correct cosine_max_len repetition_n_grams repetition_max_penalty reward_model_plugin "
    "chord_sft_dataset chord_sft_per_device_train_batch_size chord_enable_phi_function chord_mu_warmup_steps "
    "chord_mu_decay_steps chord_mu_peak chord_mu_valley sync_ref_model ref_model_sync_steps ref_model_mixup_alpha "
    "multi_turn_scheduler max_turns completion_length_limit_scope vllm_server_pass_dataset use_gym_env gym_env "
    "dynamic_sample max_resample_times overlong_filter soft_max_length soft_cache_length scale_rewards log_entropy "
    "top_entropy_quantile importance_sampling_level tau_pos tau_neg advantage_estimator kl_in_reward "
    "teacher_kl_coef advantage_reweight rlsd_lambda rlsd_reweight_clip_range rlsd_lambda_warmup_steps "
    "rlsd_lambda_decay_steps rlsd_negative_only sdar_loss_coef sdar_gate_beta real_tau fipo_decay_rate "
    "fipo_clip_range fipo_clip_high_only fipo_safety_threshold num_generations_eval "
    "rollout_importance_sampling_mode rollout_importance_sampling_threshold log_rollout_offpolicy_metrics "
    "off_policy_sequence_mask_delta min_p use_vllm vllm_mode vllm_max_num_seqs vllm_enable_prefix_caching "
    "vllm_enable_lora vllm_server_base_url vllm_server_host vllm_server_port vllm_server_timeout "
    "vllm_server_group_port enable_flattened_weight_sync async_generate structured_outputs_regex sleep_level "
    "move_model_batches offload_model wandb_log_unique_prompts generation_batch_size steps_per_generation "
    "teacher_tag_key vllm_gpu_memory_utilization vllm_tensor_parallel_size vllm_pipeline_parallel_size "
    "vllm_enable_expert_parallel vllm_max_model_len vllm_disable_custom_all_reduce vllm_enforce_eager "
    "vllm_limit_mm_per_prompt vllm_max_lora_rank vllm_use_async_engine vllm_quantization vllm_reasoning_parser "
    "vllm_disable_cascade_attn vllm_mm_processor_cache_gb vllm_speculative_config vllm_engine_kwargs "
    "vllm_data_parallel_size teacher_model teacher_adapters teacher_model_type teacher_model_revision "
    "teacher_deepspeed teacher_model_server offload_teacher_model ref_adapter_name reference_free";

constexpr Renamed kSwiftRenamed[] = {{"batch_size", "per_device_train_batch_size", "3.0"},
                                     {"eval_batch_size", "per_device_eval_batch_size", "3.0"},
                                     {"dtype", "torch_dtype", "3.0"},
                                     {"lora_dropout_p", "lora_dropout", "3.0"},
                                     {"lora_bias_trainable", "lora_bias", "3.0"},
                                     {"lora_target_modules", "target_modules", "3.0"},
                                     {"lora_target_regex", "target_regex", "3.0"},
                                     {"lora_modules_to_save", "modules_to_save", "3.0"},
                                     {"bnb_4bit_comp_dtype", "bnb_4bit_compute_dtype", "3.0"}};

constexpr Table kSwift = {"ms-swift 4.6.0", kSwiftKeys, kSwiftGaps, kSwiftHarmless, nullptr, kSwiftRenamed};
constexpr Table kSwiftRlhf = {"ms-swift 4.6.0", {}, {}, kSwiftPreferences};

/// model/model_arch.py: the parts of a model of several, by model_type.
struct SwiftParts {
  const char *model_type, *language, *vision, *aligner;
};
constexpr SwiftParts kSwiftParts[] = {
    {"llava", "language_model", "vision_tower", "multi_modal_projector"},
    {"llava_next", "language_model", "vision_tower", "multi_modal_projector"},
    {"qwen2_vl", "language_model", "visual", "visual.merger"},
    {"qwen2_5_vl", "language_model", "visual", "visual.merger"},
    {"idefics3", "text_model", "vision_model", "connector"},
};

const SwiftParts* parts_of_model(const json& config) {
  const json type = member(config, "model_type");
  const auto at = std::find_if(std::begin(kSwiftParts), std::end(kSwiftParts),
                               [&](const SwiftParts& one) { return type == one.model_type; });
  return at == std::end(kSwiftParts) ? nullptr : at;
}

const char* tuner_key(const Keys& keys) {
  return keys.has("tuner_type")   ? "tuner_type"
         : keys.has("train_type") ? "train_type"
         : keys.has("sft_type")   ? "sft_type"
                                  : "tuner_type";
}

/// pipelines/train/tuner.py: get_target_modules; get_multimodal_target_regex of models of several parts.
void take_swift_lora(const Context& context, Keys& keys, const SwiftParts* parts) {
  for (const char* key : {"lora_rank", "lora_alpha", "lora_dropout", "lora_bias"}) keys.take(key);
  const std::vector<std::string> names = keys.names("target_modules");
  const bool all = names.size() == 1 && names[0] == "all-linear";
  if (keys.has("target_regex")) {
    keys.take("target_regex", "/training/lora/target_modules", keys.value("target_regex"));
    keys.ignore("target_modules");
  } else if (parts == nullptr || !all) {
    keys.take("target_modules", "/training/lora/target_modules", all ? context.linear_layers() : json(names));
  } else {
    const bool tower = !keys.truth("freeze_vit"), aligner = !keys.truth("freeze_aligner");
    if (tower || aligner)
      keys.leave_out(tower ? "freeze_vit" : "freeze_aligner", Effect::more,
                     "adapters on layers of the tower or the aligner; only the language model's are taken");
    keys.take(
        "target_modules", "/training/lora/target_modules",
        std::string(".*\\b") + parts->language + "\\..*\\.(?:q_proj|k_proj|v_proj|o_proj|gate_proj|up_proj|down_proj)");
  }
  if (const std::vector<std::string> saved = keys.names("modules_to_save"); !saved.empty())
    keys.take("modules_to_save", "/training/lora/modules_to_save", saved);
  if (const std::vector<std::string> parameters = keys.names("target_parameters"); !parameters.empty())
    keys.take("target_parameters", "/training/lora/target_parameters", parameters);
  if (keys.truth("use_dora")) keys.take("use_dora", "/training/lora/use_dora", true);
  if (keys.truth("use_rslora")) keys.take("use_rslora", "/training/lora/use_rslora", true);
}

void take_swift_quantization(Context& context, Keys& keys, const std::string& weights) {
  const bool is_older = !keys.has("quant_bits") && keys.integer("quantization_bit") > 0;
  keys.mark("quantization_bit");
  const char* const bits_key = is_older ? "quantization_bit" : "quant_bits";
  const std::string method = is_older && !keys.has("quant_method") ? "bnb" : keys.text("quant_method");
  const std::int64_t bits = keys.integer(bits_key);
  if (method.empty()) {
    for (const char* key : {"quant_bits", "bnb_4bit_compute_dtype", "bnb_4bit_quant_type", "bnb_4bit_use_double_quant"})
      keys.ignore(key);
    return;
  }
  if (method != "bnb")
    return keys.refuse("quant_method", "found " + quote(method) + ", which is not supported yet; expected bnb");
  if (bits != 4) return keys.take(bits_key, "/training/quantization/load_in_8bit", true);
  keys.take(bits_key, "/training/quantization/load_in_4bit", true);
  keys.take("bnb_4bit_quant_type");
  keys.take("bnb_4bit_use_double_quant");
  const std::string said = dtype_of(keys.text("bnb_4bit_compute_dtype"));
  const std::string computes = said.empty() ? weights : said;
  keys.take("bnb_4bit_compute_dtype", "/training/quantization/bnb_4bit_compute_dtype",
            computes == "fp32"   ? "float32"
            : computes == "fp16" ? "float16"
                                 : "bfloat16");
  // swift/pipelines/train/tuner.py calls no prepare_model_for_kbit_training.
  context.ledger.put("/training/quantization/prepare_model_for_kbit_training", false);
}

/// The files of ms-swift that a name stands for (swift/config/*.json): stages with buckets of 2e8 and no overlap.
json deepspeed_of_name(const std::string& name) {
  const bool offloads = name.ends_with("_offload");
  const std::string plain = name.substr(0, name.find('_'));
  json config = {
      {"fp16", {{"enabled", "auto"}}}, {"bf16", {{"enabled", "auto"}}}, {"gradient_accumulation_steps", "auto"},
      {"gradient_clipping", "auto"},   {"train_batch_size", "auto"},    {"train_micro_batch_size_per_gpu", "auto"}};
  json& zero = config["zero_optimization"];
  if (plain == "zero0" || plain == "zero1" || plain == "zero2")
    zero = {{"stage", plain == "zero2"   ? 2
                      : plain == "zero1" ? 1
                                         : 0},
            {"allgather_partitions", true},
            {"allgather_bucket_size", 2e8},
            {"overlap_comm", false},
            {"reduce_scatter", true},
            {"reduce_bucket_size", 2e8},
            {"contiguous_gradients", true}};
  else
    zero = {{"stage", 3},
            {"overlap_comm", false},
            {"contiguous_gradients", true},
            {"sub_group_size", 1e9},
            {"reduce_bucket_size", "auto"},
            {"stage3_prefetch_bucket_size", "auto"},
            {"stage3_param_persistence_threshold", "auto"},
            {"stage3_max_live_parameters", 1e9},
            {"stage3_max_reuse_distance", 1e9},
            {"stage3_gather_16bit_weights_on_model_save", true}};
  if (offloads) zero["offload_optimizer"] = {{"device", "cpu"}, {"pin_memory", true}};
  if (offloads && plain == "zero3") zero["offload_param"] = {{"device", "cpu"}, {"pin_memory", true}};
  return config;
}

}  // namespace

bool is_swift(const json& tree) {
  if (!tree.contains("model") || !tree["model"].is_string()) return false;
  for (const char* key : {"tuner_type", "train_type", "rlhf_type", "sft_type", "freeze_vit", "attn_impl"})
    if (tree.contains(key)) return true;
  return false;
}

void read_swift(Context& context, Keys& keys, const std::string& program) {
  keys.know(training_arguments());
  keys.know(kSwift);
  Ledger& ledger = context.ledger;
  ledger.trainer = kSwift.project;
  if (!program.empty() && program != "sft" && program != "pt")
    keys.refuse("", "`swift " + program + "` is not supported yet; `swift sft` and `swift pt` are");
  if (program == "rlhf" || keys.has("rlhf_type")) keys.know(kSwiftRlhf);
  if (const std::string type = keys.text("rlhf_type"); !type.empty())
    keys.refuse("rlhf_type", "found " + quote(type) + ": ms-swift's trainer of it is not supported yet");
  if (const std::string task = keys.text("task_type"); !task.empty() && task != "causal_lm")
    keys.refuse("task_type", "found " + quote(task) + ", which is not supported yet; expected causal_lm");
  ledger.put("/training/loop/name", "transformers.Trainer");
  context.take_model(keys, keys.has("model_id_or_path") ? "model_id_or_path" : "model");
  const SwiftParts* parts = parts_of_model(context.model_config());
  // Weights are as config.json says; autocast follows them, fp16 for float32 (_init_mixed_precision).
  std::string weights = dtype_of(keys.text("torch_dtype"));
  if (weights.empty()) weights = context.published_dtype(keys);
  const bool bf16 = keys.has("bf16") ? keys.truth("bf16") : weights == "bf16";
  const bool fp16 = keys.has("fp16") ? keys.truth("fp16") : weights != "bf16";
  keys.mark("bf16");
  keys.mark("fp16");
  if (bf16 && fp16) keys.refuse(keys.has("bf16") ? "bf16" : "fp16", "bf16 and fp16 cannot both be true");
  context.take_precision(keys, "torch_dtype", weights, "bf16", bf16 ? "bf16" : fp16 ? "fp16" : "");
  const bool is_flash = !keys.has("attn_impl") && keys.has("use_flash_attn") && keys.truth("use_flash_attn");
  keys.mark("use_flash_attn");
  const std::string attention = is_flash ? "flash_attn" : keys.text("attn_impl");
  keys.take(is_flash ? "use_flash_attn" : "attn_impl", "/training/attention",
            attention == "flash_attn"        ? "flash_attention_2"
            : attention == "flash_attention" ? "flash_attention_2"
                                             : attention);
  if (keys.has("max_length"))
    keys.take("max_length");
  else
    ledger.missing.push_back({"value", "max_length", keys.file(), "max_length",
                              "samples are cut at the model's longest: say how long yours are (max_length)"});
  // A row of documents is max_length long, each micro-batch has as many as it says.
  for (const char* key : {"packing", "padding_free"}) keys.ignore(key);
  const std::int64_t size = std::max<std::int64_t>(keys.size("per_device_train_batch_size"), 1);
  if (!keys.has("gradient_accumulation_steps")) {
    const std::int64_t all = std::min<std::int64_t>(size * std::max<std::int64_t>(context.launch.gpus, 1), 1 << 20);
    keys.take("gradient_accumulation_steps", "/training/gradient_accumulation_steps",
              std::max<std::int64_t>(1, (16 + all - 1) / all));
  }
  const bool is_ddp = context.launch.gpus > 1 && !keys.has("deepspeed") && !keys.has("fsdp");
  take_checkpointing(keys, !is_ddp);
  take_training_arguments(context, keys);
  const char* const tuner = tuner_key(keys);
  const std::string type = keys.text(tuner);
  if (type == "full") {
    keys.take(tuner, "/training/stage", "full");
    std::vector<std::string> frozen;
    if (parts) {
      if (keys.truth("freeze_vit")) frozen.emplace_back(parts->vision);
      if (keys.truth("freeze_aligner")) frozen.emplace_back(parts->aligner);
      if (keys.truth("freeze_llm")) frozen.emplace_back(parts->language);
      if (keys.truth("freeze_vit") && !keys.truth("freeze_aligner") &&
          std::string_view(parts->aligner).starts_with(std::string(parts->vision) + "."))
        keys.leave_out("freeze_aligner", Effect::more, "the aligner, a part of the tower, trains");
    }
    if (!frozen.empty()) {
      ledger.put("/training/stage", "custom");
      keys.take("freeze_vit", "/training/freeze", frozen);
    }
  } else if (type == "lora") {
    keys.mark(tuner);
    take_swift_lora(context, keys, parts);
  } else {
    keys.refuse(tuner, "found " + quote(type) + ", which is not supported yet; expected full or lora");
  }
  take_swift_quantization(context, keys, weights);
  if (!(keys.has("use_logits_to_keep") && !keys.truth("use_logits_to_keep")))
    keys.leave_out("use_logits_to_keep", Effect::less, "logits of scored tokens alone: all are taken to be scored");
  const auto environment = context.launch.environment.find("MAX_PIXELS");
  const bool is_qwen = parts && std::string_view(parts->model_type).starts_with("qwen");
  if (is_qwen && keys.has("max_pixels")) {
    keys.take("max_pixels", "/data/max_pixels", keys.integer("max_pixels"));
  } else if (is_qwen && environment != context.launch.environment.end()) {
    if (const json pixels = scalar_of(environment->second); pixels.is_number_integer()) {
      ledger.put("/data/max_pixels", pixels);
      ledger.taken.push_back({context.launch.file, "MAX_PIXELS", "/data/max_pixels", pixels, false, ""});
    }
  }
  // Until 3.0 each began with "default-".
  if (std::string name = keys.text("deepspeed"); name.starts_with("default-"))
    keys.over(keys.file_of("deepspeed"), {{"deepspeed", name.substr(8)}});
  if (const std::string name = keys.text("deepspeed");
      is_word_of(name, "zero0 zero1 zero2 zero3 zero2_offload zero3_offload"))
    keys.over(keys.file_of("deepspeed"), {{"deepspeed", deepspeed_of_name(name)}});
}

}  // namespace oometer::importers
