#include "importers/axolotl/axolotl.h"

#include <algorithm>
#include <iterator>
#include <string_view>
#include <utility>

#include "config/reader.h"
#include "importers/transformers/training_arguments.h"
#include "peft/lora_kernels.h"
#include "train/objectives/causal_lm.h"

namespace oometer::importers {

using nlohmann::json;

namespace {

constexpr const char* kSchema = "utils/schemas/config.py: AxolotlInputConfig";
constexpr const char* kHyper = "utils/schemas/training.py: HyperparametersConfig";
constexpr const char* kLora = "utils/schemas/peft.py: LoraConfig";
constexpr const char* kKernels = "utils/schemas/config.py: check_auto_enable_lora_kernels";
constexpr const char* kLigerArgs = "integrations/liger/args.py: LigerArgs";

constexpr Key kAxolotlKeys[] = {
    {"base_model", "", "", ""},
    {"sequence_len", "512", kSchema, ""},
    {"micro_batch_size", "1", kHyper, ""},
    {"batch_size", "", kHyper, ""},
    {"gradient_accumulation_steps", "1", kHyper, ""},
    {"eval_batch_size", "", "utils/config/__init__.py: normalize_config", ""},
    {"max_grad_norm", "1.0", "core/builders/base.py: transformers' own", "/training/max_grad_norm"},
    {"bf16", "\"auto\"", kSchema, ""},
    {"fp16", "false", kSchema, ""},
    {"bfloat16", "false", kSchema, ""},
    {"float16", "false", kSchema, ""},
    {"gradient_checkpointing", "false", kSchema, ""},
    {"gradient_checkpointing_kwargs", "", "utils/config/__init__.py: normalize_config", ""},
    {"activation_offloading", "false", kSchema, ""},
    {"unfrozen_parameters", "", kSchema, ""},
    {"optimizer", "\"adamw_torch_fused\"", kHyper, ""},
    {"optim_args", "", kHyper, ""},
    {"optim_target_modules", "", kHyper, ""},
    {"weight_decay", "0.0", kHyper, ""},
    {"attn_implementation", "\"sdpa\"", "modeling_utils.py: from_pretrained", ""},
    {"flash_attention", "", kSchema, ""},
    {"sdp_attention", "", kSchema, ""},
    {"eager_attention", "", kSchema, ""},
    {"sample_packing", "false", kSchema, ""},
    {"multipack_real_batches", "", kSchema, ""},
    {"adapter", "", kLora, ""},
    {"load_in_4bit", "false", kLora, ""},
    {"load_in_8bit", "false", kLora, ""},
    {"bnb_config_kwargs", "", "loaders/model.py: _set_quantization_config", ""},
    {"quantize_moe_experts", "false", kSchema, ""},
    {"flash_attn_fuse_mlp", "", "loaders/patch_manager.py: _apply_llama_flash_attn_patches", ""},
    {"max_packed_sequence_len", "", "utils/schemas/deprecated.py", ""},
    {"rope_scaling", "", "utils/schemas/deprecated.py", ""},
    {"s2_attention", "", "utils/schemas/deprecated.py", ""},
    {"flash_attn_rms_norm", "", "utils/schemas/deprecated.py", ""},
    {"dp_shard_size", "", "utils/distributed.py: _get_parallel_config_kwargs", ""},
    {"lora_r", "", kLora, "/training/lora/rank"},
    {"lora_alpha", "", kLora, "/training/lora/alpha"},
    {"lora_dropout", "0.0", kLora, "/training/lora/dropout"},
    {"lora_target_modules", "", kLora, ""},
    {"lora_target_parameters", "", kLora, ""},
    {"lora_target_linear", "false", kLora, ""},
    {"lora_modules_to_save", "", kLora, ""},
    {"peft_use_dora", "false", kLora, ""},
    {"peft_use_rslora", "false", kLora, ""},
    {"peft_autocast_adapter_dtype", "", kLora, ""},
    {"lora_mlp_kernel", "true", kKernels, ""},
    {"lora_qkv_kernel", "true", kKernels, ""},
    {"lora_o_kernel", "true", kKernels, ""},
    {"plugins", "", "", ""},
    {"liger_rope", "", kLigerArgs, "/training/liger/rope"},
    {"liger_rms_norm", "", kLigerArgs, "/training/liger/rms_norm"},
    {"liger_glu_activation", "", kLigerArgs, "/training/liger/swiglu"},
    {"liger_swiglu", "", kLigerArgs, "/training/liger/swiglu"},
    {"liger_cross_entropy", "", kLigerArgs, "/training/liger/cross_entropy"},
    {"liger_fused_linear_cross_entropy", "", kLigerArgs, "/training/liger/fused_linear_cross_entropy"},
    {"chunked_cross_entropy", "false", kSchema, ""},
    {"chunked_cross_entropy_num_chunks", "8", kSchema, ""},
    {"val_set_size", "0.0", kSchema, ""},
    {"test_datasets", "", kSchema, ""},
    {"fsdp_version", "", kSchema, ""},
    {"rl", "", kSchema, ""},
    {"reward_model", "false", kSchema, ""},
    {"process_reward_model", "false", kSchema, ""},
    {"cut_cross_entropy", "false", "integrations/cut_cross_entropy/args.py: CutCrossEntropyArgs", ""},
    {"freeze_mm_modules", "false", kSchema, ""},
    {"noisy_embedding_alpha", "", kSchema, ""},
};

constexpr Gap kAxolotlGaps[] = {
    {"lora_model_dir", "", Effect::either, "adapters that are loaded have the rank and layers of their own file"},
    {"lora_embedding_kernel", "", Effect::less, "a kernel of Axolotl's own for adapters of the embeddings"},
    {"layer_offloading", "", Effect::less, "weights of frozen layers lie in host memory"},
    {"selective_checkpointing", "", Effect::more, "a checkpoint keeps what attention returned"},
    {"use_scattermoe", "", Effect::either, "kernels of Axolotl's own for experts"},
    {"use_sonicmoe", "", Effect::either, "kernels of Axolotl's own for experts"},
    {"use_kernels", "", Effect::either, "kernels of the hub in the place of the model's own"},
    {"use_dsv4_kernels", "", Effect::either, "kernels of Axolotl's own"},
    {"use_glm_dsa_kernels", "", Effect::either, "kernels of Axolotl's own"},
    {"fused_attn_kernel", "", Effect::less, "norm and rotary embedding in one kernel"},
    {"experts_implementation", "\"grouped_mm\"", Effect::either, "how experts are computed"},
    {"torch_compile", "false", Effect::either, "fused kernels keep fewer activations for backward"},
    {"fp8", "", Effect::either, "products in fp8"},
    {"fp8_enable_fsdp_float8_all_gather", "", Effect::less, "FSDP gathers weights in fp8"},
    {"qat", "", Effect::more, "weights as they would be quantized, beside their own"},
    {"quantization", "", Effect::either, "weights are quantized"},
    {"llmcompressor", "", Effect::more, "masks of what was pruned"},
    {"gptq", "", Effect::less, "weights that are stored quantized"},
    {"model_quantization_config", "", Effect::less, "weights that are stored quantized are converted when loaded"},
    {"context_parallel_size", "1", Effect::less, "each GPU has a part of the sequence"},
    {"sequence_parallel_degree", "1", Effect::less, "each GPU has a part of the sequence"},
    {"tensor_parallel_size", "1", Effect::less, "each GPU has a part of each weight"},
    {"expert_parallel_size", "1", Effect::less, "each GPU has some of the experts"},
    {"dp_replicate_size", "1", Effect::more, "copies of the shards, between which gradients are summed, too"},
    {"liger_rms_norm_gated", "", Effect::less, "gated norms in one kernel"},
    {"liger_layer_norm", "", Effect::less, "layer norms in one kernel"},
    {"liger_use_token_scaling", "", Effect::either, "weights of tokens in the loss"},
    {"flash_attn_cross_entropy", "", Effect::less, "a loss in the place of the logits"},
    {"flash_optimum", "", Effect::either, "BetterTransformer"},
    {"xformers_attention", "", Effect::either, "attention of xformers; taken as SDPA"},
    {"flex_attention", "", Effect::either, "FlexAttention; taken as SDPA"},
    {"flex_attn_compile_kwargs", "", Effect::either, "FlexAttention"},
    {"lisa_n_layers", "", Effect::less, "only some layers train at a time"},
    {"relora", "", Effect::either, "adapters are merged and made anew"},
    {"relora_steps", "", Effect::either, "adapters are merged and made anew"},
    {"loraplus_lr_ratio", "", Effect::either, "parameter groups of their own for B"},
    {"lr_groups", "", Effect::either, "parameter groups of their own"},
    {"embedding_lr", "", Effect::either, "parameter groups of their own"},
    {"tokens", "", Effect::more, "rows of the embeddings and of the head for new tokens"},
    {"peft_init_lora_weights", "true", Effect::either, "how adapters are made"},
    {"peft_layers_to_transform", "", Effect::less, "only some layers have adapters"},
    {"peft_layer_replication", "", Effect::more, "layers run more than once"},
    {"peft_trainable_token_indices", "", Effect::more, "rows of the embeddings that train"},
    {"lora_rank_pattern", "", Effect::either, "adapters of other ranks"},
    {"peft", "", Effect::either, "LoftQ"},
    {"image_size", "", Effect::less, "images are made this size"},
    {"batch_flattening", "", Effect::less, "a batch in one row, without padding"},
    {"early_stopping_patience", "", Effect::either, "an evaluation that ends the run"},
    {"eval_table_size", "0", Effect::more, "an evaluation that generates"},
    {"do_causal_lm_eval", "", Effect::more, "an evaluation that generates"},
    {"overrides_of_model_config", "", Effect::either, "another configuration of the model"},
    {"model_config", "", Effect::either, "another configuration of the model"},
    {"diffusion", "", Effect::either, "a diffusion language model's training"},
    {"ebft", "", Effect::either, "another objective"},
    {"use_onebitllms", "", Effect::either, "weights of one bit"},
    {"llama4_linearized_experts", "", Effect::either, "experts as layers"},
    {"dynamic_checkpoint", "", Effect::either, "a checkpoint at any time"},
    {"kd_trainer", "", Effect::more, "a teacher's logits"},
    {"mora", "", Effect::either, "MoRA's adapters"},
    {"reinit_weights", "", Effect::either, "weights are made anew"},
    {"device_map", "", Effect::either, "where the weights are put"},
    {"lora_on_cpu", "", Effect::less, "embeddings in host memory"},
    {"tiled_mlp", "", Effect::less, "the MLP runs a part of the sequence at a time"},
    {"fp32_norms", "", Effect::more, "norms in float32"},
    {"use_eaft", "", Effect::more, "a loss of its own, from float32 logits"},
    {"sage_attention", "", Effect::either, "SageAttention; taken as SDPA"},
    {"large_head_attention", "", Effect::either, "attention of large heads by another kernel"},
    {"sdpa_varlen", "", Effect::less, "documents of a row without a mask"},
    {"scaling_softmax", "", Effect::either, "attention with a scale of its own"},
    {"ple_cpu_offload", "", Effect::less, "embeddings of layers in host memory"},
    {"deepcompile", "", Effect::either, "DeepSpeed compiles the model"},
    {"use_pose", "", Effect::either, "positions with gaps"},
    {"profiler_steps", "", Effect::more, "what a profiler keeps"},
    {"max_memory", "", Effect::either, "where the weights are put"},
    {"gpu_memory_limit", "", Effect::either, "where the weights are put"},
    {"embedding_lr_scale", "", Effect::either, "parameter groups of their own"},
    {"grokfast_alpha", "", Effect::more, "a mean of the gradients"},
    {"lora_alpha_pattern", "", Effect::either, "adapters of other scales"},
    {"peft_layers_pattern", "", Effect::less, "only some layers have adapters"},
    {"torch_compile_options", "", Effect::either, "how the model is compiled"},
    {"spectrum_top_fraction", "", Effect::less, "only some layers train"},
    {"overrides_of_model_kwargs", "", Effect::either, "what the model is loaded with"},
    {"dense_mixer", "", Effect::more, "all experts run in backward"},
    {"moe_grouped_backend", "", Effect::either, "kernels of Axolotl's own for experts"},
    {"hatchery", "", Effect::either, "another machine trains"},
    {"auto_find_batch_size", "", Effect::less, "the batch is made smaller until it fits"},
    {"torch_compile_backend", "", Effect::either, "how the model is compiled"},
    {"torch_compile_mode", "", Effect::either, "how the model is compiled"},
    {"generate_samples", "", Effect::more, "samples are generated while it trains, with a KV cache"},
    {"do_bench_eval", "", Effect::more, "an evaluation that answers questions"},
    {"lm_eval_post_train", "", Effect::more, "an evaluation after the last step"},
    {"gc_collect_steps", "", Effect::less,
     "what the allocator has unused is given back at these steps, and a peak "
     "of reserved memory begins from less"},
    {"flash_attn_d512", "", Effect::either, "attention of large heads by another kernel"},
    {"expert_backend", "", Effect::either, "kernels of Axolotl's own for experts"},
    {"moe_bnb_fast", "", Effect::either, "kernels of Axolotl's own for experts"},
    {"moe_dequant_chunk_size", "", Effect::either, "how many experts are converted at a time"},
    {"nonexpert_quantization", "\"none\"", Effect::less, "weights beside the experts are stored quantized"},
    {"gemma4_fp8_nonexpert", "", Effect::less, "weights beside the experts are stored quantized"},
    {"gemma4_nf4_nonexpert", "", Effect::less, "weights beside the experts are stored quantized"},
    {"nvfp4_merge_aware", "", Effect::more, "weights as they would be merged and quantized"},
    {"dsv4_bf16_all", "", Effect::more, "weights that are published in fp8 are converted"},
    {"dsv4_fp8_lora_kernel", "", Effect::either, "kernels of Axolotl's own"},
    {"dsv4_fp8_nonexpert_mode", "", Effect::either, "how weights beside the experts are stored"},
    {"dsv4_shared_mlp_lora_kernel", "", Effect::either, "kernels of Axolotl's own"},
    {"unsloth_cross_entropy_loss", "", Effect::less, "a kernel of Unsloth, which Axolotl no longer has"},
    {"unsloth_lora_mlp", "", Effect::less,
     "a kernel of Unsloth, which Axolotl no longer has: lora_mlp_kernel is its own"},
    {"unsloth_lora_qkv", "", Effect::less,
     "a kernel of Unsloth, which Axolotl no longer has: lora_qkv_kernel is its own"},
    {"unsloth_lora_o", "", Effect::less, "a kernel of Unsloth, which Axolotl no longer has: lora_o_kernel is its own"},
    {"unsloth_rms_norm", "", Effect::less, "a kernel of Unsloth, which Axolotl no longer has"},
    {"unsloth_rope", "", Effect::less, "a kernel of Unsloth, which Axolotl no longer has"},
    {"nemo_gym_enabled", "", Effect::either, "another objective"},
    {"peft_ensure_weight_tying", "", Effect::less, "the head and the embeddings share what trains of them"},
};

constexpr std::string_view kAxolotlHarmless =
    "model_type tokenizer_type tokenizer_config tokenizer_use_fast tokenizer_legacy tokenizer_use_mistral_common "
    "processor_type processor_config processor_kwargs trust_remote_code base_model_config base_model_ignore_patterns "
    "revision_of_model type_of_model is_llama_derived_model is_mistral_derived_model is_falcon_derived_model "
    "is_qwen_derived_model strict datasets shuffle_merged_datasets shuffle_before_merging_datasets "
    "dataset_prepared_path dataset_processes dataset_exact_deduplication dataset_keep_in_memory pretraining_dataset "
    "skip_prepare_dataset push_dataset_to_hub hf_use_auth_token chat_template chat_template_jinja eot_tokens "
    "default_system_message fix_untrained_tokens special_tokens added_tokens_overrides train_on_inputs "
    "evals_per_epoch saves_per_epoch lr_scheduler num_epochs wandb_project wandb_entity wandb_watch wandb_name "
    "wandb_log_model wandb_run_id wandb_mode use_wandb use_mlflow mlflow_tracking_uri mlflow_experiment_name "
    "mlflow_run_name use_comet comet_api_key comet_workspace comet_project_name use_swanlab swanlab_project "
    "swanlab_experiment_name swanlab_description swanlab_mode swanlab_log_completions swanlab_completion_log_interval "
    "swanlab_completion_max_buffer swanlab_workspace use_trackio trackio_project_name trackio_run_name use_tensorboard "
    "pad_to_sequence_len pad_to_multiple_of eval_sample_packing sample_packing_eff_est "
    "sample_packing_seq_len_multiplier "
    "sample_packing_group_size sample_packing_bin_size sample_packing_sequentially total_num_tokens "
    "excess_length_strategy eval_sequence_len min_sample_len loss_watchdog_threshold loss_watchdog_patience "
    "auto_resume_from_checkpoints resume_from_checkpoint lora_fan_in_fan_out gptq_groupsize gptq_model_v1 "
    "torchdistx_path experimental_skip_move_to_device adam_beta3 adam_epsilon2 adam_eps cosine_min_lr_ratio "
    "cosine_constant_lr_ratio "
    "lr_quadratic_warmup lr_div_factor save_first_step save_total_limit loraplus_lr_embedding merge_lora "
    "relora_prune_ratio relora_cpu_offload "
    "jagged_restart_steps jagged_restart_warmup_steps jagged_restart_anneal_steps curriculum_sampling "
    "dsv4_fp4_grouped_mode expert_parallel_num_nvl_bytes expert_parallel_token_capacity center_rewards_coefficient "
    "num_labels rl_beta kto_desirable_weight trl vllm model_quantization_config_kwargs mean_resizing_embeddings "
    "shrink_embeddings embeddings_skip_upcast val_set_size ddp world_size local_rank device "
    "use_ray ray_run_name ray_num_workers tiled_mlp_num_shards logging_steps is_file save_safetensors hub_model_id "
    "streaming sample_packing_mp_start_method image_resize_algorithm role_boundaries tokenizer_save_jinja_files "
    "trainer_cls profiler_steps_start eval_causal_lm_metrics lisa_step_interval "
    "lisa_layers_attribute liger_kernel_impl qlora_sharded_model_loading merge_method relora_prune_method "
    "streaming_multipack_buffer_size pretrain_multipack_buffer_size pretrain_multipack_attn "
    "pretraining_sample_concatenation dataset_shard_num dataset_shard_idx comet_mode comet_online "
    "swanlab_api_key swanlab_log_model lm_eval_tasks lm_eval_batch_size gradio_title gradio_share "
    "debug cloud_provider include_tkps axolotl_config_path bench_dataset bench_split capabilities env_capabilities "
    "chat_template_kwargs cls_model_config comet_experiment_config comet_experiment_key dataset_num_proc "
    "fsdp_final_state_dict_type low_cpu_mem_usage float32 is_preprocess preprocess_iterable num_dataset_shards_to_save "
    "total_supervised_tokens hf_mlflow_log_artifacts otel_metrics_host otel_metrics_port use_otel_metrics "
    "resources_per_worker gradio_max_new_tokens gradio_server_name gradio_server_port gradio_temperature "
    "lm_eval_model spectrum_model_name "
    // of an optimizer, where that one is named
    "dion_lr dion_momentum dion_rank_fraction dion_rank_multiple_of qgalore_cos_threshold qgalore_gamma_proj "
    "qgalore_proj_bits qgalore_proj_group_size qgalore_proj_quant qgalore_proj_type qgalore_queue_size qgalore_rank "
    "qgalore_scale qgalore_update_proj_gap grokfast_lamb "
    // of a switch that is listed
    "eaft_alpha eaft_k fp32_norm_classes fp8_config heads_k_stride ring_attn_func kd_alpha kd_beta kd_ce_alpha "
    "kd_normalize_topk kd_online_server kd_online_server_base_url kd_online_timeout kd_online_topk kd_temperature "
    "kd_temperature_min pose_max_context_len pose_num_chunks pose_split_on_token_ids scaling_softmax_bias "
    "scaling_softmax_factor tiled_mlp_use_original_mlp expert_parallel_backend "
    "expert_parallel_fallback_on_unsupported expert_parallel_num_rdma_bytes nvfp4_merge_aware_start_step "
    "nemo_gym_auto_clone nemo_gym_auto_start nemo_gym_config_paths nemo_gym_datasets nemo_gym_dir nemo_gym_head_port "
    "nemo_gym_max_turns nemo_gym_model_name nemo_gym_multi_turn nemo_gym_run_timeout nemo_gym_server_timeout "
    "nemo_gym_verify_timeout generation_do_sample generation_max_new_tokens generation_prompt_ratio "
    "generation_temperature generation_top_k generation_top_p num_generation_samples "
    // of a method of `rl`, where that one is named
    "dpo_beta dpo_generate_during_eval dpo_label_smoothing dpo_loss_type dpo_loss_weights dpo_norm_loss "
    "dpo_padding_free dpo_use_liger_kernel dpo_use_logits_to_keep dpo_use_weighting precompute_ref_log_probs "
    "kto_undesirable_weight orpo_alpha cpo_alpha simpo_gamma rpo_alpha max_prompt_len eval_max_new_tokens";

/// Models that Liger 0.8 has a function for (MODEL_TYPE_TO_APPLY_LIGER_FN), or the plugin itself (integrations/liger/
/// plugin.py: LigerPlugin.pre_model_load). Of others its keys do nothing, but for the fused loss.
constexpr std::string_view kLigerKnows =
    "deepseek_v2 deepseek_v3 deepseek_v4 exaone4 falcon_h1 gemma gemma2 gemma3 gemma3_text gemma4 gemma4_text "
    "gemma4_unified gemma4_unified_text glm4 glm4v glm4v_moe gpt_oss granite granitemoe hunyuan_v1_dense "
    "hunyuan_v1_moe internvl jamba llama llama4 llama4_text llava ministral ministral3 mistral mistral3 mixtral mllama "
    "mllama_text_model muse_glimmer nemotron olmo2 olmo3 paligemma phi3 pixtral qwen2 qwen2_5_vl qwen2_5_vl_text "
    "qwen2_vl qwen2_vl_text qwen3 qwen3_5 qwen3_5_moe qwen3_5_moe_text qwen3_5_text qwen3_moe qwen3_next qwen3_vl "
    "qwen3_vl_moe qwen3_vl_moe_text qwen3_vl_text smollm3 smolvlm";

/// Of these, those whose towers have torch's LayerNorm, which is patched: by Liger's function, or by the plugin.
constexpr std::string_view kLigerNormsTowers = "gemma3 internvl llama4 mllama muse_glimmer paligemma qwen2_vl smolvlm";
constexpr std::string_view kPluginNormsTowers = "gemma4_unified qwen3_5 qwen3_5_moe";

/// Models whose classes are patched before one is made, as the plugin does it, get more of Liger's norms than a model
/// that is made, as transformers' Trainer does it, which is what oometer knows.
constexpr std::string_view kLigerNormsMoreByClass =
    "deepseek_v4 gemma4 gemma4_text hunyuan_v1_dense hunyuan_v1_moe olmo2 olmo3";

constexpr Renamed kAxolotlRenamed[] = {{"evaluation_strategy", "eval_strategy", "0.8.0"},
                                       {"wandb_run_id", "wandb_name", "0.4.0"}};

constexpr Table kAxolotl = {"axolotl 0.19.0", kAxolotlKeys, kAxolotlGaps, kAxolotlHarmless, nullptr, kAxolotlRenamed};

/// resolve_dtype (utils/config/__init__.py): the type that weights are loaded in.
std::string weights_of(Keys& keys, bool bf16) {
  if (bf16 || keys.truth("bfloat16")) return "bf16";
  if (keys.truth("load_in_8bit") || keys.truth("fp16") || keys.truth("float16")) return "fp16";
  return "fp32";
}

/// "auto" is true on GPUs that have it (utils/config/__init__.py: normalize_config).
bool is_bf16(Keys& keys) {
  const json said = keys.value("bf16");
  return said == "auto" ? !keys.truth("fp16") : said == "full" || keys.truth("bf16");
}

/// Whether DeepSpeed or FSDP runs it.
bool is_sharded(const Keys& keys) { return keys.has("deepspeed") || keys.has("fsdp") || keys.has("fsdp_config"); }

/// The version at the top, or in fsdp_config (utils/schemas/validation.py: check_fsdp_version_in_fsdp_config).
bool is_fsdp2(Keys& keys) {
  const json own = keys.value("fsdp_config");
  const auto is_2 = [](const json& version) { return version == 2 || version == "2"; };
  return is_2(keys.value("fsdp_version")) || is_2(member(own, "fsdp_version")) || is_2(member(own, "version"));
}

void take_axolotl_attention(Context& context, Keys& keys) {
  // The older switches (utils/schemas/config.py: normalize_attn_implementation).
  constexpr std::pair<const char*, const char*> kOlder[] = {
      {"flash_attention", "flash_attention_2"}, {"sdp_attention", "sdpa"}, {"eager_attention", "eager"}};
  for (const auto& [key, means] : kOlder)
    if (!keys.has("attn_implementation") && keys.truth(key)) return keys.take(key, "/training/attention", means);
  std::string name = keys.text("attn_implementation");
  if (is_word_of(name, "flash flash_attn flash_attention")) name = "flash_attention_2";
  if (is_word_of(name, "flex_attention xformers sage flash_attention_4 flash_attention_torch")) {
    if (const std::string type = member_text(context.model_config(), "model_type");
        is_word_of(type, "gptj falcon") && is_word_of(name, "flex_attention xformers sage flash_attention_torch"))
      return keys.refuse("attn_implementation", "found " + quote(name) +
                                                    ", which the class has no attention for, so that " +
                                                    "loading stops (KeyError); expected eager or flash_attention_2" +
                                                    (type == "falcon" ? " or sdpa" : ""));
    keys.leave_out("attn_implementation", Effect::either, name + " is taken as SDPA");
    name = "sdpa";
  }
  if (name.starts_with("kernels-community/") && member_text(context.model_config(), "model_type") == "gpt_oss") {
    keys.leave_out("attn_implementation", Effect::less,
                   name + " makes no matrix of scores, and knows attention sinks; taken as eager attention");
    name = "eager";
  }
  // Heads of the layers without windows are too wide for flash-attn.
  if (keys.truth("gemma4_hybrid_attn_impl") && name == "flash_attention_2") {
    keys.leave_out("gemma4_hybrid_attn_impl", Effect::either,
                   "layers with windows use flash-attn 2, the others SDPA; all are taken as SDPA");
    name = "sdpa";
  }
  keys.take("attn_implementation", "/training/attention", name);
}

/// core/trainers/base.py: _create_multipack_sampler. Where the attention keeps documents apart, a batch is one row.
void take_axolotl_samples(Context& context, Keys& keys) {
  const std::int64_t length = keys.integer("sequence_len"), size = keys.integer("micro_batch_size");
  const json attention = member(member(context.ledger.job, "training"), "attention");
  const bool is_flash = keys.truth("gemma4_hybrid_attn_impl") ||
                        (attention.is_string() && attention.get<std::string>().find("flash") != std::string::npos);
  // core/builders/causal.py: build_collator. Without a processor a model that sees is given text alone.
  // (Mllama without images is not supported yet.)
  if (context.model_config().contains("vision_config") && !keys.has("processor_type") &&
      member_text(context.model_config(), "model_type") != "mllama")
    context.ledger.put("/data/images_per_sample", 0);
  const bool packs = keys.truth("sample_packing");
  if (packs) keys.note("sample_packing", "/data/sequence_length");
  const bool real_batches = keys.has("multipack_real_batches") ? keys.truth("multipack_real_batches") : !is_flash;
  keys.mark("multipack_real_batches");
  if (!packs || real_batches || size == 1 || size < 1 || size > 1024 || length > (std::int64_t{1} << 31) / size) {
    keys.take("sequence_len", "/data/sequence_length", length);
    return keys.take("micro_batch_size", "/data/micro_batch_size", size);
  }
  keys.take("sequence_len", "/data/sequence_length", size * length);
  keys.take("micro_batch_size", "/data/micro_batch_size", 1);
}

/// Models whose attention its rewriting of the source does not know, or whose class it does not find, so that it stops
/// (monkeypatch/lora_kernels.py: patch_self_attn_lora, get_attention_cls_from_config; with transformers 5.23).
constexpr std::string_view kKernelsStop =
    "aya_vision bailing_hybrid bloom cohere deepseek_v2 deepseek_v3 deepseek_v32 deepseek_v4 falcon falcon_h1 "
    "falcon_mamba gemma3n_text glm46v glm4_moe glm4_moe_lite glm4v glm_moe_dsa gpt2 gpt_bigcode gpt_neox gptj idefics3 "
    "internlm3 internvl iquestcoder kimi_k25 kimi_linear laguna lfm2 lfm2_moe lfm2_vl llava llava_next "
    "llava_onevision mamba mamba2 mimo_v2_flash minimax_m2 mistral4 mllama olmo2 olmo3 olmo_hybrid olmoe opt paligemma "
    "persimmon phi phi3 qwen2_5_vl qwen2_vl qwen3_vl_moe smolvlm stablelm voxtral youtu";

/// Of the loader and the builder (utils/config/__init__.py: normalize_config, core/builders/base.py:
/// _configure_gradient_checkpointing), and what is offloaded (utils/schemas/validation.py:
/// check_gradient_checkpointing_w_offload, core/trainers/mixins/activation_checkpointing.py).
void take_axolotl_checkpointing(Context& context, Keys& keys) {
  constexpr const char *kKey = "gradient_checkpointing", *kOptions = "gradient_checkpointing_kwargs";
  constexpr const char* kAt = "/training/activation_checkpointing";
  const std::string type = member_text(context.model_config(), "model_type");
  const json said = keys.value(kKey), options = keys.value(kOptions);
  const bool is_older = said.is_string() && is_word_of(said.get<std::string>(), "offload offload_disk");
  const bool has_adapters = !keys.text("adapter").empty();
  if (is_word_of(type, "gemma4 gemma4_unified") && (is_older || keys.truth(kKey))) {
    keys.take(kKey, kAt, "non-reentrant");  // whatever the file says
    keys.ignore(kOptions);
  } else if (is_older) {
    const bool is_reentrant = member(options, "use_reentrant") != false;
    keys.take(options.is_object() ? kOptions : kKey, kAt, is_reentrant ? "reentrant" : "non-reentrant");
  } else {
    take_checkpointing(keys, !keys.has("unfrozen_parameters") && !keys.has("rl"));
  }
  const char* const key = is_older ? kKey : "activation_offloading";
  const json offloads = is_older ? json(true) : keys.value(key);
  if (is_older) keys.ignore("activation_offloading");
  if (!offloads.is_string() && offloads != true) return keys.ignore(key);
  if (!is_older && !keys.truth(kKey))
    return keys.refuse(key, "Axolotl wants gradient_checkpointing with it, and stops: set it, or leave this out");
  const bool is_streamed = offloads == true || offloads == "disk";
  if (!is_streamed || !has_adapters || keys.has("rl") || keys.truth("reward_model") || is_sharded(keys))
    return keys.leave_out(key, Effect::either, "what is saved for backward lies in host memory");
  keys.take(key, "/training/loop/args/activation_offloading", true);
}

/// freeze_layers_except (utils/freeze.py), whose expressions match names from their beginning.
void note_unfrozen(Keys& keys, bool has_adapters) {
  constexpr const char* kKey = "unfrozen_parameters";
  const std::vector<std::string> names = keys.names(kKey);
  if (names.empty()) return keys.ignore(kKey);
  const bool none = has_adapters && std::none_of(names.begin(), names.end(), [](const std::string& name) {
                      return name.find("base_model") != std::string::npos || name.find("[") < name.find('.');
                    });
  keys.leave_out(kKey, Effect::less,
                 none ? "only these parameters train, and none has such a name: with adapters all begin with "
                        "\"base_model.model.\", so that the adapters are frozen, too; answered as if they trained"
                      : "only these parameters train");
}

/// Its own functions over layers with adapters: those that are named, else all where they can run
/// (check_auto_enable_lora_kernels).
void take_axolotl_kernels(Context& context, Keys& keys, const std::string& adapter) {
  constexpr const char* kNames[] = {"lora_mlp_kernel", "lora_qkv_kernel", "lora_o_kernel", "lora_embedding_kernel"};
  bool is_said = false, is_any = false;
  for (const char* kernel : kNames) is_said |= keys.has(kernel);
  // On several GPUs under FSDP only where the key at the top says 2: the other place is read later.
  const json version = keys.value("fsdp_version");
  const bool is_fsdp1 = keys.has("fsdp_config") && version != 2 && version != "2";
  const bool can = !is_fsdp1 && !keys.has("rl") && !(adapter == "lora" && keys.truth("load_in_8bit")) &&
                   !keys.truth("trust_remote_code");
  const auto is_on = [&](const char* kernel) { return is_said ? keys.has(kernel) && keys.truth(kernel) : can; };
  for (const char* kernel : kNames) is_any |= is_on(kernel);
  if (!is_any) {
    for (const char* kernel : kNames) keys.ignore(kernel);
    return;
  }
  const std::string type = member_text(context.model_config(), "model_type");
  if ((is_on("lora_qkv_kernel") || is_on("lora_o_kernel")) && is_word_of(type, kKernelsStop))
    return keys.leave_out("lora_qkv_kernel", Effect::less,
                          "Axolotl's kernels of adapters, on unless the file says otherwise, stop at this model's "
                          "attention (\"Original QKV code not found\"): set lora_qkv_kernel, lora_o_kernel and "
                          "lora_mlp_kernel to false, as is answered here");
  // What the core has of them (peft/lora_kernels.h). With packing, layers of linear attention have one of their own.
  const bool is_half = weights_of(keys, is_bf16(keys)) != "fp32";
  const bool is_modelled = is_half && !keys.truth("peft_use_dora") && !is_sharded(keys) &&
                           !(keys.truth("sample_packing") && type.starts_with("qwen3_5")) &&
                           has_lora_kernels(context.model_class());
  if (!is_modelled)
    return keys.leave_out("lora_mlp_kernel", Effect::less,
                          "Axolotl's kernels of adapters (lora_mlp_kernel, lora_qkv_kernel, lora_o_kernel) keep fewer "
                          "activations for backward");
  for (const char* kernel : {"lora_mlp_kernel", "lora_qkv_kernel", "lora_o_kernel"}) {
    if (is_on(kernel))
      keys.take(kernel, std::string("/training/lora/") + kernel, true);
    else
      keys.ignore(kernel);
  }
}

void take_axolotl_lora(Context& context, Keys& keys, const std::string& adapter) {
  if (adapter != "lora" && adapter != "qlora")
    return keys.refuse("adapter", "found " + quote(adapter) + ", which is not supported yet; expected lora or qlora");
  keys.note("adapter", "/training/lora");
  context.ledger.put("/training/loop/project", "axolotl");  // loaders/adapter.py: load_adapter
  keys.take("lora_r");
  keys.take("lora_alpha");
  keys.take("lora_dropout");
  const std::vector<std::string> names = keys.names("lora_target_modules");
  const bool all = keys.truth("lora_target_linear");
  const json given = keys.value("lora_target_modules");
  if (all)
    keys.take("lora_target_linear", "/training/lora/target_modules", context.linear_layers());
  else if (given.is_string())
    keys.take("lora_target_modules", "/training/lora/target_modules", given);  // an expression
  else if (!names.empty())
    keys.take("lora_target_modules", "/training/lora/target_modules", names);
  if (all && !names.empty()) keys.mark("lora_target_modules");
  if (const std::vector<std::string> parameters = keys.names("lora_target_parameters"); !parameters.empty())
    keys.take("lora_target_parameters", "/training/lora/target_parameters", parameters);
  if (const std::vector<std::string> saved = keys.names("lora_modules_to_save"); !saved.empty())
    keys.take("lora_modules_to_save", "/training/lora/modules_to_save", saved);
  if (keys.truth("peft_use_dora")) keys.take("peft_use_dora", "/training/lora/use_dora", true);
  if (keys.truth("peft_use_rslora")) keys.take("peft_use_rslora", "/training/lora/use_rslora", true);
  keys.take_given("peft_autocast_adapter_dtype", "/training/lora/autocast_adapter_dtype");
  take_axolotl_kernels(context, keys, adapter);
  if (adapter == "qlora" && keys.truth("load_in_4bit")) {
    keys.take("load_in_4bit", "/training/quantization/load_in_4bit", true);
    keys.take("bnb_config_kwargs", "/training/quantization/bnb_4bit_quant_type", "nf4");
    keys.take("bnb_config_kwargs", "/training/quantization/bnb_4bit_use_double_quant", true);
    // loaders/model.py: _set_quantization_config, in the weights' type
    const std::string weights = weights_of(keys, is_bf16(keys));
    keys.take("bf16", "/training/quantization/bnb_4bit_compute_dtype",
              weights == "fp16"   ? "float16"
              : weights == "bf16" ? "bfloat16"
                                  : "float32");
    const bool is_of_float32 = !is_sharded(keys) && is_word_of(member_text(context.model_config(), "model_type"),
                                                               "jamba qwen2_moe nemotron_h");
    keys.take("bnb_config_kwargs", "/training/quantization/bnb_4bit_quant_storage",
              is_of_float32 ? "float32" : "bfloat16");
    // prepare_model_for_kbit_training makes norms and embeddings float32, and _configure_embedding_dtypes bf16 again;
    // under FSDP neither is called.
    context.ledger.put("/training/quantization/prepare_model_for_kbit_training", false);
    if (const json own = keys.value("bnb_config_kwargs"); own.is_object())
      for (const auto& [name, value] : own.items())
        if (is_word_of(name, "bnb_4bit_quant_type bnb_4bit_use_double_quant bnb_4bit_quant_storage"))
          context.ledger.put("/training/quantization/" + name, value);
  } else if (keys.truth("load_in_8bit")) {
    keys.take("load_in_8bit", "/training/quantization/load_in_8bit", true);
  }
  for (const char* key : {"load_in_4bit", "load_in_8bit"}) keys.mark(key);
}

/// Its FSDP 2, with nothing that cuts weights or the sequence otherwise.
bool is_plain_fsdp2(Keys& keys) {
  for (const char* key : {"deepspeed", "tensor_parallel_size", "context_parallel_size", "sequence_parallel_degree",
                          "expert_parallel_size", "dp_replicate_size"})
    if (keys.has(key)) return false;
  return keys.has("fsdp_config") && is_fsdp2(keys);
}

void take_axolotl_losses(Context& context, Keys& keys) {
  std::string plugins;
  for (const std::string& plugin : keys.names("plugins")) plugins += plugin + " ";
  const bool has_liger = plugins.find("liger") != std::string::npos;
  constexpr const char* kLiger[] = {"liger_rope",   "liger_rms_norm",      "liger_glu_activation",
                                    "liger_swiglu", "liger_cross_entropy", "liger_fused_linear_cross_entropy"};
  const std::string type = member_text(context.model_config(), "model_type");
  const bool is_known = type.empty() || is_word_of(type, kLigerKnows);
  bool any = false;
  for (const std::string_view name : kLiger) {
    const char* const key = name.data();
    if (!has_liger || !keys.has(key) || (!is_known && name != "liger_fused_linear_cross_entropy")) {
      keys.ignore(key);
      continue;
    }
    if (!any)  // what is not said is off (integrations/liger/plugin.py)
      context.ledger.put("/training/liger", {{"rope", false},
                                             {"rms_norm", false},
                                             {"swiglu", false},
                                             {"layer_norm", false},
                                             {"cross_entropy", false},
                                             {"fused_linear_cross_entropy", false}});
    if (!any) keys.note("plugins", "/training/liger");
    any = true;
    keys.take(key);
  }
  if (keys.truth("liger_rms_norm") && is_word_of(type, kLigerNormsMoreByClass))
    keys.leave_out("liger_rms_norm", Effect::less, "more of its norms in one kernel");
  const bool sees = member(member(context.ledger.job, "data"), "images_per_sample") != 0;
  if (any && sees && is_word_of(type, kLigerNormsTowers))
    keys.take_given("liger_layer_norm", "/training/liger/layer_norm");
  else if (!sees || !is_word_of(type, kPluginNormsTowers))
    keys.ignore("liger_layer_norm");
  if (!is_word_of(type, "qwen3_5 qwen3_5_moe")) keys.ignore("liger_rms_norm_gated");
  if (keys.truth("chunked_cross_entropy"))
    keys.take("chunked_cross_entropy_num_chunks", "/training/chunked_cross_entropy",
              keys.integer("chunked_cross_entropy_num_chunks"));
  else
    keys.mark("chunked_cross_entropy_num_chunks");
  const bool cuts = keys.has("cut_cross_entropy") ? keys.truth("cut_cross_entropy")
                                                  : plugins.find("cut_cross_entropy") != std::string::npos;
  keys.mark("cut_cross_entropy");
  if (cuts && weights_of(keys, is_bf16(keys)) != "fp32" && (!is_sharded(keys) || is_plain_fsdp2(keys)) &&
      has_cut_cross_entropy(context.model_class())) {
    keys.take("cut_cross_entropy", "/training/cut_cross_entropy", true);
  } else if (cuts) {
    std::optional<std::int64_t> bytes;
    const json& config = context.model_config();
    const json vocabulary = member(config, "vocab_size");
    const std::int64_t tokens = keys.size("sequence_len") * std::min<std::int64_t>(keys.size("micro_batch_size"), 256);
    // logits in half precision and in float32, and the gradient of each
    if (vocabulary.is_number_integer() && vocabulary > 0 && vocabulary < 1 << 24)
      bytes = 12 * tokens * vocabulary.get<std::int64_t>();
    keys.leave_out("cut_cross_entropy", Effect::less, "the logits never exist as a whole, up to", bytes);
  }
}

/// Modules that are float32 outside FSDP (loaders/model.py: _configure_embedding_dtypes): routers, and, where the whole
/// model trains with an attention that takes float32, norms, embeddings and head, unless cut_cross_entropy has them
/// converted back. DeepSpeed converts all of them.
void take_float32_parts(Context& context, Keys& keys, bool has_adapters) {
  if (is_sharded(keys) || weights_of(keys, is_bf16(keys)) == "fp32") return;
  const json training = member(context.ledger.job, "training");
  const std::string type = member_text(context.model_config(), "model_type");
  json names = json::array();
  if (!has_adapters && is_word_of(keys.text("attn_implementation"), "sdpa eager") &&
      is_word_of(member_text(training, "attention"), "sdpa eager") && member(training, "cut_cross_entropy") != true) {
    // get_linear_embedding_layers (loaders/utils.py)
    names = type == "gpt_neox"     ? json{"norm", "embed_in", "embed_out"}
            : type == "falcon"     ? json{"norm", "word_embeddings", "lm_head"}
            : type == "nemotron_h" ? json{"norm", "embeddings", "lm_head"}
                                   : json{"norm", "embed_tokens", "lm_head"};
  }
  const json config = context.model_config(), of_text = member(config, "text_config");
  for (const char* count : {"num_experts", "num_local_experts", "n_routed_experts"})
    if (!member(config, count).is_null() || !member(of_text, count).is_null()) {
      names.push_back(".gate");
      break;
    }
  if (names.empty()) return;
  if (keys.has("rl") || keys.truth("reward_model")) {
    if (!has_adapters)
      keys.leave_out("adapter", Effect::more,
                     "norms, embeddings and head are float32 where the whole model trains without FSDP; here they have "
                     "the weights' type");
    return;
  }
  keys.note("adapter", "/training/float32_modules");
  context.ledger.put("/training/float32_modules", names);
}

/// Classes of experts with which it was compared.
constexpr std::string_view kQuantizesExperts =
    "deepseek_v2 deepseek_v3 ernie4_5_moe glm4_moe glm4_moe_lite gpt_oss mixtral nemotron_h qwen2_moe qwen3_5_moe "
    "qwen3_moe qwen3_next";

/// monkeypatch/moe_quant.py
void take_quantized_experts(Context& context, Keys& keys) {
  constexpr const char* kKey = "quantize_moe_experts";
  if (!keys.truth(kKey)) return keys.ignore(kKey);
  if (keys.truth("lora_target_linear"))
    return keys.refuse(kKey, "Axolotl stops at lora_target_linear beside it: name the layers in lora_target_modules");
  if (!keys.truth("load_in_4bit") && !keys.truth("load_in_8bit"))
    return keys.refuse(kKey, "Axolotl wants load_in_4bit or load_in_8bit with it, and stops");
  // What peft makes adapters of experts of, where a class has them in one tensor.
  const std::vector<std::string> targets = keys.names("lora_target_modules");
  const bool adapts_experts =
      keys.has("lora_target_parameters") || std::any_of(targets.begin(), targets.end(), [](const std::string& name) {
        return name.ends_with("gate_proj") || name.ends_with("up_proj") || name.ends_with("down_proj");
      });
  const bool is_modelled = keys.text("adapter") == "qlora" && keys.truth("load_in_4bit") && !is_sharded(keys) &&
                           !adapts_experts && !keys.has("experts_implementation") &&
                           is_word_of(member_text(context.model_config(), "model_type"), kQuantizesExperts);
  if (!is_modelled) return keys.leave_out(kKey, Effect::less, "experts in four bits");
  keys.take(kKey, "/training/quantization/quantize_moe_experts", true);
}

/// Embeddings get as many rows as the tokenizer has tokens, in whole 32s, where they have fewer (loaders/model.py:
/// _resize_token_embeddings): none, where the model has them in whole 32s and the file adds no tokens; else at most 31
/// more than without the key, of each of two weights in float32 with a gradient and two states.
void note_more_rows(Context& context, Keys& keys) {
  constexpr const char* kKey = "resize_token_embeddings_to_32x";
  if (!keys.truth(kKey)) return keys.ignore(kKey);
  const json rows = member(context.model_config(), "vocab_size");
  if (rows.is_number_integer() && rows.get<std::int64_t>() % 32 == 0 && !keys.has("tokens")) return keys.ignore(kKey);
  const json width = member(context.model_config(), "hidden_size");
  std::optional<std::int64_t> bytes;
  if (width.is_number_integer() && width > 0 && width < 1 << 20) bytes = 31 * 2 * 16 * width.get<std::int64_t>();
  keys.leave_out(kKey, Effect::more, "up to 31 more rows of embeddings and head", bytes);
}

/// Keys of earlier versions at which it stops (utils/schemas/deprecated.py). An MLP of xformers is Llama's alone.
void take_older_keys(Context& context, Keys& keys) {
  for (const char* key : {"max_packed_sequence_len", "rope_scaling", "s2_attention", "flash_attn_rms_norm"})
    if (const json said = keys.value(key); !said.is_null() && said != false && said != 0)
      keys.leave_out(key, Effect::either, "Axolotl no longer has it, and stops: leave it out, as is answered here");
    else
      keys.ignore(key);
  constexpr const char* kFused = "flash_attn_fuse_mlp";
  if (keys.truth(kFused) &&
      is_word_of(member_text(context.model_config(), "model_type"), "llama llama4 ernie4_5 ernie4_5_moe"))
    keys.leave_out(kFused, Effect::either, "an MLP in one kernel, where xformers is installed");
  else
    keys.ignore(kFused);
}

/// gc_steps is the older name of two keys (utils/schemas/config.py: migrate_gc_steps).
void take_older_collection(Keys& keys) {
  constexpr const char *kOlder = "gc_steps", *kNewer = "torch_empty_cache_steps", *kCollects = "gc_collect_steps";
  if (!keys.has(kOlder) || keys.has(kNewer) || keys.has(kCollects)) return keys.ignore(kOlder);
  const json steps = keys.value(kOlder);
  if (steps.is_number_integer() && steps > 0)
    return keys.take(kOlder, "/training/loop/args/torch_empty_cache_steps", steps);
  keys.ignore(kOlder);
}

/// _get_parallel_config_kwargs (utils/distributed.py). With no other dimension of the mesh it is the number of GPUs;
/// else those that share a weight: FSDP shards over this dimension and that of context parallelism (accelerate,
/// parallelism_config.py: fsdp_dim_names).
void take_shards(Context& context, Keys& keys) {
  constexpr const char* kKey = "dp_shard_size";
  const json shards = keys.value(kKey);
  if (!shards.is_number_integer() || shards <= 1 || shards > 65536) return keys.ignore(kKey);
  bool is_alone = true;
  for (const char* other : {"dp_replicate_size", "tensor_parallel_size", "context_parallel_size",
                            "sequence_parallel_degree", "expert_parallel_size"})
    is_alone &= !keys.has(other);
  const std::int64_t parts =
      std::clamp<std::int64_t>(keys.has("context_parallel_size") ? keys.integer("context_parallel_size") : 1, 1, 1024);
  if (parts > 1) keys.leave_out("context_parallel_size", Effect::less, "each GPU has a part of the sequence");
  const std::int64_t share = shards.get<std::int64_t>() * parts, gpus = context.launch.gpus;
  if (!is_sharded(keys) || keys.has("deepspeed") || (gpus > 0 && (is_alone ? gpus != share : gpus % share != 0)))
    return keys.leave_out(kKey, Effect::either, "GPUs that share the weights: as many as are said with --gpus");
  if (gpus != share) {
    context.launch.gpus = share;
    context.launch.key = kKey;
  }
  keys.note(kKey, "/parallel/accelerate_config");
}

/// Axolotl's own fsdp2_prepare_model (monkeypatch/accelerate/fsdp2.py).
void take_fsdp2(Context& context, Keys& keys) {
  if (is_fsdp2(keys)) context.ledger.put("/parallel/fsdp/preparer", "axolotl");
}

/// CustomSupportedOptimizers (utils/schemas/enums.py) are classes that its Trainer is given, in two parameter groups
/// (core/builders/base.py: _configure_custom_optimizer); others are names of transformers' `optim`.
struct AxolotlOptimizer {
  const char *name, *ours;
};
constexpr AxolotlOptimizer kAxolotlOptimizers[] = {
    {"optimi_adamw", R"({"name": "optimi.AdamW", "args": {"foreach": false}, "param_groups": 2})"},
    {"adopt_adamw",
     R"({"name": "axolotl.utils.optimizers.adopt.ADOPT", "args": {"decouple": true}, "param_groups": 2})"},
    {"ao_adamw_fp8", R"({"name": "torchao.optim.AdamWFp8", "param_groups": 2})"},
    {"came_pytorch", R"({"name": "came_pytorch.CAME", "param_groups": 2})"},
    {"flash_adamw", R"({"name": "flashoptim.FlashAdamW", "param_groups": 2})"},
    {"flash_adam", R"({"name": "flashoptim.FlashAdam", "param_groups": 2})"},
    {"flash_lion", R"({"name": "flashoptim.FlashLion", "param_groups": 2})"},
};

void take_axolotl_optimizer(Keys& keys) {
  const std::string name = keys.text("optimizer");
  for (const AxolotlOptimizer& custom : kAxolotlOptimizers)
    if (name == custom.name) return keys.take("optimizer", "/training/optimizer", json::parse(custom.ours));
  keys.take("optimizer", "/training/loop/args/optim", name);
}

/// What `rl` names, as TRL's trainer of it (core/builders/rl.py: HFRLTrainerBuilder).
constexpr std::pair<std::string_view, const char*> kPreferences[] = {{"dpo", "trl.DPOTrainer"},
                                                                     {"ipo", "trl.DPOTrainer"},
                                                                     {"kto", "trl.KTOTrainer"},
                                                                     {"orpo", "trl.experimental.orpo.ORPOTrainer"}};

/// The trainer whose loop runs, and what only TRL's have (core/trainers/dpo: DPOStrategy.set_training_args_kwargs).
void take_axolotl_trainer(Context& context, Keys& keys) {
  constexpr const char* kLoop = "/training/loop/name";
  const auto refuse = [&](const char* key) {
    keys.refuse(key, "found " + describe(keys.value(key)) + ": Axolotl's trainer of it is not supported yet");
  };
  if (keys.truth("process_reward_model")) return refuse("process_reward_model");
  if (keys.truth("reward_model")) return keys.take("reward_model", kLoop, "trl.RewardTrainer");
  for (const char* key : {"reward_model", "process_reward_model"}) keys.mark(key);
  const json given = keys.value("rl");
  const std::string method = given.is_string() ? given.get<std::string>() : "";
  if (method.empty()) return context.ledger.put(kLoop, "transformers.Trainer");
  const auto* const found = std::find_if(std::begin(kPreferences), std::end(kPreferences),
                                         [&](const auto& row) { return row.first == method; });
  if (found == std::end(kPreferences)) return refuse("rl");
  keys.take("rl", kLoop, found->second);
  if (method != "dpo" && method != "ipo") return;
  if (method == "ipo") keys.take("rl", "/training/loop/args/loss_type", json::array({"ipo"}));
  constexpr std::pair<const char*, const char*> kArguments[] = {
      {"dpo_loss_type", "loss_type"},
      {"dpo_loss_weights", "loss_weights"},
      {"dpo_label_smoothing", "label_smoothing"},
      {"dpo_use_weighting", "use_weighting"},
      {"dpo_padding_free", "padding_free"},
      {"dpo_use_liger_kernel", "use_liger_kernel"},
      {"precompute_ref_log_probs", "precompute_ref_log_probs"}};
  for (const auto& [key, argument] : kArguments) keys.take_given(key, std::string("/training/loop/args/") + argument);
  if (keys.truth("rl_adapter_ref_model"))
    keys.leave_out("rl_adapter_ref_model", Effect::more, "the reference is a model of its own beside the adapters");
  context.ledger.put("/training/loop/project", "axolotl");  // AxolotlDPOTrainer.training_step
}

}  // namespace

bool is_axolotl(const json& tree) { return tree.contains("base_model") && !tree.contains("base_model_name_or_path"); }

void read_axolotl(Context& context, Keys& keys) {
  keys.know(training_arguments());
  keys.know(kAxolotl);
  context.ledger.trainer = kAxolotl.project;
  context.shards_by_fsdp_config = true;  // utils/trainer.py: prepare_optim_env
  take_axolotl_trainer(context, keys);
  context.take_model(keys, "base_model");
  const bool fp16 = keys.truth("fp16");
  const bool bf16 = is_bf16(keys);
  const std::string weights = weights_of(keys, bf16);
  // core/builders/base.py: _configure_precision_settings
  const bool autocasts = bf16 || keys.truth("bfloat16");
  context.take_precision(keys, "bf16", weights, "bf16", autocasts ? "bf16" : fp16 ? "fp16" : "");
  take_axolotl_attention(context, keys);
  take_axolotl_samples(context, keys);
  if (keys.has("batch_size") && !keys.has("gradient_accumulation_steps")) {
    const std::int64_t size = std::max<std::int64_t>(keys.integer("micro_batch_size"), 1);
    keys.take("batch_size", "/training/gradient_accumulation_steps",
              std::max<std::int64_t>(keys.integer("batch_size") / size, 1));
  } else {
    keys.mark("batch_size");
    keys.take("gradient_accumulation_steps", "/training/gradient_accumulation_steps",
              keys.integer("gradient_accumulation_steps"));
  }
  keys.take("max_grad_norm");
  // utils/schemas/validation.py: the first was the name of the second
  for (const char* key : {"noisy_embedding_alpha", "neftune_noise_alpha"})
    keys.take_given(key, "/training/loop/args/neftune_noise_alpha");
  // core/builders/causal.py: build
  if (context.launch.is_of_several())
    keys.take("ddp_find_unused_parameters", "/training/loop/args/ddp_find_unused_parameters",
              keys.truth("ddp_find_unused_parameters"));
  for (const char* key : {"ddp_bucket_cap_mb", "ddp_broadcast_buffers", "torch_empty_cache_steps"})
    keys.take_given(key, std::string("/training/loop/args/") + key);
  take_older_collection(keys);
  take_axolotl_optimizer(keys);
  if (const json given = keys.value("optim_args"); given.is_string()) {
    keys.take_given("optim_args", "/training/loop/args/optim_args");
  } else if (given.is_object() && !given.empty()) {
    std::string words;  // core/builders/base.py: _configure_optimizer
    for (const auto& [name, value] : given.items())
      words += (words.empty() ? "" : ",") + name + "=" + (value.is_string() ? value.get<std::string>() : value.dump());
    keys.take("optim_args", "/training/loop/args/optim_args", words);
  }
  keys.take_given("optim_target_modules", "/training/loop/args/optim_target_modules");
  keys.take_given("weight_decay", "/training/loop/args/weight_decay");
  take_data_workers(keys);
  take_axolotl_checkpointing(context, keys);
  take_axolotl_losses(context, keys);
  const std::string adapter = keys.text("adapter");
  note_unfrozen(keys, !adapter.empty());
  if (adapter.empty()) {
    keys.take("adapter", "/training/stage", "full");
    if (keys.truth("load_in_4bit") || keys.truth("load_in_8bit"))
      keys.refuse(keys.truth("load_in_4bit") ? "load_in_4bit" : "load_in_8bit",
                  "quantized weights cannot be trained: set adapter");
  } else {
    take_axolotl_lora(context, keys, adapter);
  }
  take_quantized_experts(context, keys);
  take_older_keys(context, keys);
  take_shards(context, keys);
  take_float32_parts(context, keys, !adapter.empty());
  const json held_back = keys.value("val_set_size");
  if ((held_back.is_number() && held_back > 0) || keys.has("test_datasets")) {
    keys.take(keys.has("test_datasets") ? "test_datasets" : "val_set_size", "/training/loop/args/eval_strategy",
              "steps");
    keys.take("eval_batch_size", "/training/loop/args/per_device_eval_batch_size",
              keys.has("eval_batch_size") ? keys.value("eval_batch_size")
                                          : member(member(context.ledger.job, "data"), "micro_batch_size"));
  } else {
    keys.mark("test_datasets");
    keys.ignore("eval_batch_size");
  }
  for (const char* key : {"eval_steps", "eval_strategy", "save_steps", "save_strategy", "max_steps"}) keys.ignore(key);
  note_more_rows(context, keys);
  take_fsdp2(context, keys);
  // What the adapters leave out is frozen anyway.
  const bool is_of_text =
      !adapter.empty() && keys.text("lora_target_modules").find("language_model") != std::string::npos;
  if (is_of_text)
    keys.ignore("freeze_mm_modules");
  else if (keys.truth("freeze_mm_modules"))
    keys.leave_out("freeze_mm_modules", Effect::less, "the tower and its projector do not train");
}

}  // namespace oometer::importers
