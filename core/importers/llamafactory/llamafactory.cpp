#include "importers/llamafactory/llamafactory.h"

#include <algorithm>

#include "config/reader.h"
#include "importers/transformers/training_arguments.h"

namespace oometer::importers {

using nlohmann::json;

namespace {

constexpr const char* kModel = "hparams/model_args.py: ModelArguments";
constexpr const char* kData = "hparams/data_args.py: DataArguments";
constexpr const char* kTuning = "hparams/finetuning_args.py: FinetuningArguments";

constexpr Key kFactoryKeys[] = {
    {"model_name_or_path", "", kModel, ""},
    {"stage", "\"sft\"", kTuning, ""},
    {"finetuning_type", "\"lora\"", kTuning, ""},
    {"pure_bf16", "false", "model/adapter.py: init_adapter", ""},  // else what trains is cast to fp32
    {"cutoff_len", "2048", kData, "/data/sequence_length"},
    {"packing", "", "hparams/parser.py: get_train_args", ""},  // true at the stage pt
    {"ddp_find_unused_parameters", "", "hparams/parser.py: get_train_args", ""},
    {"neat_packing", "false", kData, ""},
    {"flash_attn", "\"auto\"", kModel, ""},
    {"enable_liger_kernel", "false", kModel, ""},
    {"disable_gradient_checkpointing", "false", kModel, ""},
    {"use_reentrant_gc", "true", kModel, ""},
    {"lora_rank", "8", kTuning, "/training/lora/rank"},
    {"lora_alpha", "", "hparams/finetuning_args.py: __post_init__", ""},  // twice the rank
    {"lora_dropout", "0.0", kTuning, "/training/lora/dropout"},
    {"lora_target", "\"all\"", kTuning, ""},
    {"additional_target", "", kTuning, ""},
    {"use_rslora", "false", kTuning, ""},
    {"use_dora", "false", kTuning, ""},
    {"oft_rank", "0", kTuning, ""},
    {"oft_block_size", "32", kTuning, ""},
    {"oft_target", "\"all\"", kTuning, ""},
    {"module_dropout", "0.0", kTuning, ""},
    {"quantization_bit", "", kModel, ""},
    {"quantization_method", "\"bnb\"", kModel, ""},
    {"quantization_type", "\"nf4\"", kModel, "/training/quantization/bnb_4bit_quant_type"},
    {"double_quantization", "true", kModel, "/training/quantization/bnb_4bit_use_double_quant"},
    {"freeze_vision_tower", "true", kTuning, ""},
    {"freeze_multi_modal_projector", "true", kTuning, ""},
    {"freeze_language_model", "false", kTuning, ""},
    {"image_max_pixels", "589824", kModel, "/data/max_pixels"},
    {"image_min_pixels", "1024", kModel, "/data/min_pixels"},
    {"pref_loss", "\"sigmoid\"", kTuning, ""},
    {"pref_ftx", "0.0", kTuning, ""},
    {"pref_bco_weight", "0.0", kTuning, ""},
    {"ld_alpha", "", kTuning, ""},
    {"ref_model", "", kTuning, ""},
};

constexpr Gap kFactoryGaps[] = {
    {"adapter_name_or_path", "", Effect::either, "adapters that are loaded have the rank and layers of their own file"},
    {"add_tokens", "", Effect::more, "rows of the embeddings and of the head for new tokens"},
    {"add_special_tokens", "", Effect::more, "rows of the embeddings and of the head for new tokens"},
    {"new_special_tokens_config", "", Effect::more, "rows of the embeddings and of the head for new tokens"},
    {"resize_vocab", "", Effect::more, "the embeddings are padded to a multiple of 64 rows, and train beside adapters"},
    {"rope_scaling", "", Effect::either, "rotary tables of longer sequences"},
    {"shift_attn", "", Effect::either, "attention in groups (LongLoRA)"},
    {"mixture_of_depths", "", Effect::less, "some tokens pass by a layer"},
    {"use_unsloth", "", Effect::less, "Unsloth's own kernels and checkpoints in host memory"},
    {"use_unsloth_gc", "", Effect::less, "what a checkpoint keeps is in host memory"},
    {"moe_aux_loss_coef", "", Effect::more, "the router's logits of all layers are kept for the loss"},
    {"upcast_layernorm", "", Effect::more, "norms in float32: their outputs are converted back"},
    {"upcast_lmhead_output", "", Effect::more, "logits in float32 beside those in half precision"},
    {"train_from_scratch", "", Effect::more, "weights of the config are made in float32"},
    {"pissa_init", "", Effect::either, "an SVD of each adapted weight when the adapters are made"},
    {"use_galore", "", Effect::less, "optimizer states of projected gradients"},
    {"use_apollo", "", Effect::less, "optimizer states of projected gradients"},
    {"use_badam", "", Effect::less, "one block at a time trains, in half precision with a copy in float32"},
    {"use_adam_mini", "", Effect::less, "one second moment for a whole block of weights"},
    {"use_muon", "", Effect::less, "one state for each matrix, and matrices of its iteration"},
    {"use_dft_loss", "", Effect::more, "a loss of its own, from float32 logits"},
    {"use_asft_loss", "", Effect::more, "a frozen copy of the model, and its logits"},
    {"use_eaft_loss", "", Effect::more, "a loss of its own, from float32 logits"},
    {"use_llama_pro", "", Effect::less, "only expanded blocks train"},
    {"use_mca", "", Effect::either, "Megatron's code runs the training"},
    {"use_hyper_parallel", "", Effect::either, "another parallel backend"},
    {"hyper_parallel_args", "", Effect::either, "another parallel backend"},
    {"use_kt", "", Effect::less, "experts are computed on the host (KTransformers)"},
    {"fp8", "", Effect::either, "products in fp8: weights in two types, saved inputs in one byte"},
    {"fp8_enable_fsdp_float8_all_gather", "", Effect::less, "FSDP gathers weights in fp8"},
    {"compute_accuracy", "", Effect::more, "an evaluation computes the predicted tokens from logits"},
    {"use_v1_kernels", "", Effect::either, "kernels of LLaMA-Factory in the place of the model's own"},
    {"image_do_pan_and_scan", "", Effect::more, "an image in several pieces"},
    {"crop_to_patches", "", Effect::more, "an image in several pieces"},
    {"video_max_pixels", "65536", Effect::more, "videos: only images are taken"},
    {"video_maxlen", "128", Effect::more, "videos: only images are taken"},
    {"video_fps", "2.0", Effect::more, "videos: only images are taken"},
    {"enable_torch_profiler", "", Effect::more, "what a profiler keeps"},
    {"early_stopping_steps", "", Effect::either, "fewer steps"},
    {"expert_model_parallel_size", "1", Effect::less, "Megatron's expert parallelism"},
    {"tensor_model_parallel_size", "1", Effect::less, "Megatron's tensor parallelism"},
    {"pipeline_model_parallel_size", "1", Effect::less, "Megatron's pipeline parallelism"},
    {"context_parallel_size", "1", Effect::less, "Megatron's context parallelism"},
    {"sequence_parallel", "", Effect::less, "Megatron's sequence parallelism"},
    {"recompute_granularity", "", Effect::less, "what Megatron computes again in backward"},
    {"kt_cpu_activation", "", Effect::less, "experts are computed on the host (KTransformers)"},
    {"kt_config", "", Effect::less, "experts are computed on the host (KTransformers)"},
};

constexpr std::string_view kFactoryHarmless =
    "template dataset eval_dataset dataset_dir media_dir train_on_prompt mask_history streaming buffer_size "
    "mix_strategy interleave_probs overwrite_cache preprocessing_batch_size preprocessing_num_workers max_samples "
    "eval_num_beams ignore_pad_token_for_loss val_size eval_on_each_dataset tool_format default_system enable_thinking "
    "preserve_thinking tokenized_path data_shared_file_system trust_remote_code cache_dir use_fast_tokenizer "
    "split_special_tokens init_special_tokens model_revision low_cpu_mem_usage infer_backend offload_folder "
    "use_kv_cache infer_dtype hf_hub_token ms_hub_token om_hub_token print_param_status adapter_folder "
    "quantization_device_map video_min_pixels use_audio_in_video audio_sampling_rate export_dir export_size "
    "export_device export_quantization_bit export_quantization_dataset export_quantization_nsamples "
    "export_quantization_maxlen export_legacy_format export_hub_model_id vllm_maxlen vllm_gpu_util vllm_enforce_eager "
    "vllm_max_lora_rank vllm_config sglang_maxlen sglang_mem_fraction sglang_tp_size sglang_config sglang_lora_backend "
    "freeze_trainable_layers freeze_trainable_modules freeze_extra_modules loraplus_lr_ratio loraplus_lr_embedding "
    "pissa_iter pissa_convert create_new_adapter pref_beta dpo_label_smoothing "
    "kto_chosen_weight kto_rejected_weight simpo_gamma ppo_buffer_size ppo_epochs ppo_score_norm ppo_target "
    "ppo_whiten_rewards ref_model_adapters ref_model_quantization_bit reward_model reward_model_adapters "
    "reward_model_quantization_bit reward_model_type galore_target galore_rank galore_update_interval "
    "galore_scale galore_proj_type galore_layerwise apollo_target apollo_rank apollo_update_interval apollo_scale "
    "apollo_proj apollo_proj_type apollo_scale_type apollo_layerwise apollo_scale_front badam_mode badam_start_block "
    "badam_switch_mode badam_switch_interval badam_update_ratio badam_mask_mode badam_verbose use_swanlab "
    "swanlab_project swanlab_workspace swanlab_run_name swanlab_mode swanlab_api_key swanlab_logdir "
    "swanlab_lark_webhook_url swanlab_lark_secret asft_alpha eaft_alpha disable_shuffling plot_loss "
    "include_effective_tokens_per_second ray_num_workers ray_init_kwargs master_addr master_port profiler_output_dir "
    "profiler_wait_steps profiler_warmup_steps profiler_active_steps profiler_repeat profiler_record_shapes "
    "profiler_profile_memory profiler_with_stack profile_modules fp8_backend kt_weight_path kt_expert_checkpoint_path "
    "kt_use_lora_experts kt_lora_expert_num kt_lora_expert_intermediate_size do_sample temperature top_p top_k "
    "num_beams "
    "max_length max_new_tokens repetition_penalty length_penalty skip_special_tokens "
    "bias_activation_fusion apply_rope_fusion use_distributed_optimizer overlap_param_gather overlap_grad_reduce "
    "moe_grouped_gemm moe_token_dispatcher_type";

constexpr Renamed kFactoryRenamed[] = {{"dpo_beta", "pref_beta", "0.8.0"},
                                       {"dpo_loss", "pref_loss", "0.8.0"},
                                       {"dpo_ftx", "pref_ftx", "0.8.0"},
                                       {"sft_packing", "packing", "0.7.0"},
                                       {"checkpoint_dir", "adapter_name_or_path", "0.4.0"},
                                       {"num_layer_trainable", "freeze_trainable_layers", "0.8.0"},
                                       {"name_module_trainable", "freeze_trainable_modules", "0.8.0"},
                                       {"image_resolution", "image_max_pixels", "0.9.2"}};

constexpr Table kFactory = {"llamafactory 0.9.5", kFactoryKeys, kFactoryGaps,
                            kFactoryHarmless,     nullptr,      kFactoryRenamed};

/// A model of several parts, with the names that model/model_utils/visual.py registers for them.
struct Composite {
  const char *model_type, *vision, *projector, *language;
};
constexpr Composite kComposites[] = {
    {"llava", "vision_tower", "multi_modal_projector", "language_model lm_head"},
    {"llava_next", "vision_tower", "multi_modal_projector", "language_model lm_head"},
    {"gemma3", "vision_tower", "multi_modal_projector", "language_model lm_head"},
    {"mistral3", "vision_tower", "multi_modal_projector", "language_model lm_head"},
    {"internvl", "vision_tower", "multi_modal_projector", "language_model lm_head"},
    {"qwen2_vl", "visual.patch_embed visual.blocks", "visual.merger", "language_model lm_head"},
    {"qwen2_5_vl", "visual.patch_embed visual.blocks", "visual.merger", "language_model lm_head"},
    {"qwen3_vl", "visual.pos_embed visual.patch_embed visual.blocks visual.deepstack_merger_list", "visual.merger",
     "language_model lm_head"},
};

const Composite* composite_of(const json& config) {
  if (!config.is_object()) return nullptr;
  const json type = member(config, "model_type");
  const auto at = std::find_if(std::begin(kComposites), std::end(kComposites),
                               [&](const Composite& one) { return type == one.model_type; });
  return at == std::end(kComposites) ? nullptr : at;
}

/// model/model_utils/visual.py: get_forbidden_modules. Of other models the three keys do nothing.
std::vector<std::string> frozen_modules(Keys& keys, const Composite& parts) {
  std::vector<std::string> frozen;
  const auto freeze = [&](const char* key, const char* modules) {
    if (!keys.truth(key)) return;
    for (std::string& module : split_words(modules, " ")) frozen.push_back(std::move(module));
  };
  freeze("freeze_vision_tower", parts.vision);
  freeze("freeze_multi_modal_projector", parts.projector);
  freeze("freeze_language_model", parts.language);
  return frozen;
}

/// find_all_linear_modules and patch_target_modules: which layers "all" or names stand for.
json targets_of(const Context& context, Keys& keys, const char* key, const Composite* parts) {
  const std::vector<std::string> names = keys.names(key);
  const bool is_all = names.size() == 1 && names[0] == "all";
  if (parts == nullptr) return is_all ? context.linear_layers() : json(names);
  std::string forbidden, layers;
  for (const std::string& module : frozen_modules(keys, *parts)) {
    if (!forbidden.empty()) forbidden += '|';
    for (const char letter : module) forbidden += letter == '.' ? std::string("\\.") : std::string(1, letter);
  }
  for (const std::string& name : names) layers += (layers.empty() ? "" : "|") + name;
  if (is_all) layers = "q_proj|k_proj|v_proj|o_proj|gate_proj|up_proj|down_proj|qkv_proj|gate_up_proj";
  if (is_all && !keys.truth("freeze_vision_tower"))
    keys.leave_out("freeze_vision_tower", Effect::more, "adapters on layers of the tower, which have other names");
  return (forbidden.empty() ? "" : "(?!.*(?:" + forbidden + ")).*\\.(?:") +
         std::string(forbidden.empty() ? ".*\\.(?:" : "") + layers + ")";
}

void take_factory_lora(const Context& context, Keys& keys, const Composite* parts) {
  keys.take("lora_rank");
  keys.take("lora_alpha", "/training/lora/alpha",
            keys.has("lora_alpha") ? keys.value("lora_alpha") : json(2 * keys.size("lora_rank")));
  keys.take("lora_dropout");
  keys.take("lora_target", "/training/lora/target_modules", targets_of(context, keys, "lora_target", parts));
  if (const std::vector<std::string> saved = keys.names("additional_target"); !saved.empty())
    keys.take("additional_target", "/training/lora/modules_to_save", saved);
  if (keys.truth("use_dora")) keys.take("use_dora", "/training/lora/use_dora", true);
  if (keys.truth("use_rslora")) keys.take("use_rslora", "/training/lora/use_rslora", true);
}

void take_oft(const Context& context, Keys& keys, const Composite* parts) {
  keys.take("finetuning_type", "/training/peft/peft_type", "OFT");
  keys.take("oft_rank", "/training/peft/r", keys.integer("oft_rank"));
  keys.take("oft_block_size", "/training/peft/oft_block_size", keys.integer("oft_block_size"));
  keys.take("module_dropout", "/training/peft/module_dropout", keys.value("module_dropout"));
  keys.take("oft_target", "/training/peft/target_modules", targets_of(context, keys, "oft_target", parts));
  if (const std::vector<std::string> saved = keys.names("additional_target"); !saved.empty())
    keys.take("additional_target", "/training/peft/modules_to_save", saved);
}

/// model/model_utils/quantization.py: configure_quantization, on the fly.
void take_quantization(Context& context, Keys& keys, const std::string& computes) {
  keys.mark("quantization_method");
  const std::int64_t bits = keys.integer("quantization_bit");
  if (bits == 0)
    return keys.ignore("quantization_type"), keys.ignore("double_quantization"), keys.ignore("quantization_method");
  const std::string method = keys.text("quantization_method");
  if (method != "bnb" && method != "bitsandbytes")
    return keys.refuse("quantization_method", "found " + quote(method) + ", which is not supported yet; expected bnb");
  if (bits != 4) {
    keys.take("quantization_bit", "/training/quantization/load_in_8bit", true);
    return keys.ignore("quantization_type"), keys.ignore("double_quantization");
  }
  keys.take("quantization_bit", "/training/quantization/load_in_4bit", true);
  keys.take("quantization_type");
  keys.take("double_quantization");
  const json compute = computes == "fp16" ? "float16" : computes == "fp32" ? "float32" : "bfloat16";
  keys.take("bf16", "/training/quantization/bnb_4bit_compute_dtype", compute);
  // prepare_model_for_training (model/model_utils/checkpointing.py) is its own: peft's is not called.
  context.ledger.put("/training/quantization/prepare_model_for_kbit_training", false);
}

/// What the stages of preferences have of their own, and the others have nothing of.
void take_preferences(Context& context, Keys& keys, const std::string& stage, bool is_full, bool is_pure) {
  const bool is_dpo = stage == "dpo", compares = is_dpo || stage == "kto";
  const std::string loss = keys.text("pref_loss");
  if (is_dpo)
    keys.take("pref_loss", "/training/loop/args/pref_loss", loss);
  else
    keys.ignore("pref_loss");
  for (const char* key : {"pref_ftx", "pref_bco_weight", "ld_alpha"}) {
    if ((is_dpo || (compares && std::string_view(key) == "pref_ftx")) && keys.has(key))
      keys.take(key, ("/training/loop/args/" + std::string(key)).c_str(), keys.value(key));
    else
      keys.ignore(key);
  }
  if (!compares) return keys.ignore("ref_model");
  if (keys.has("ref_model"))
    keys.refuse("ref_model", "found a reference of its own, which is not supported yet: leave it out");
  // create_ref_model: as published, where the policy is cast to float32.
  if (is_full && !is_pure && loss != "orpo" && loss != "simpo")
    context.ledger.put("/model/reference_dtype", context.published_dtype(keys));
}

void take_attention(Context& context, Keys& keys) {
  const json given = keys.value("flash_attn");
  const std::string word = given == false ? "disabled" : given == true ? "fa2" : keys.text("flash_attn");
  const json type = member(context.model_config(), "model_type");
  std::string attention = word == "fa2" ? "flash_attention_2" : word == "fa3" ? "flash_attention_3" : "sdpa";
  if (word == "disabled") attention = "eager";
  if (type == "gemma2" && word == "auto") {  // configure_attn_implementation: fa2, where it is installed
    attention = "eager";
    keys.leave_out("flash_attn", Effect::less, "Gemma 2 runs FlashAttention-2 where that is installed; taken as eager");
  }
  keys.take("flash_attn", "/training/attention", attention);
}

}  // namespace

bool is_llamafactory(const json& tree) {
  if (!tree.contains("model_name_or_path")) return false;
  for (const char* key : {"finetuning_type", "stage", "template", "cutoff_len", "lora_target", "export_dir"})
    if (tree.contains(key)) return true;
  return false;
}

void read_llamafactory(Context& context, Keys& keys) {
  keys.know(training_arguments());
  keys.know(kFactory);
  context.ledger.trainer = kFactory.project;
  if (keys.has("export_dir")) keys.refuse("export_dir", "the file says how to export a model, not how to train one");
  if (!keys.has("dataset") && keys.has("infer_backend"))
    keys.refuse("infer_backend", "the file says how to talk with a model, not how to train one");
  const std::string stage = keys.text("stage");
  const char* const loop = stage == "rm"                     ? "llamafactory.PairwiseTrainer"
                           : stage == "dpo"                  ? "llamafactory.CustomDPOTrainer"
                           : stage == "kto"                  ? "llamafactory.CustomKTOTrainer"
                           : stage == "sft" || stage == "pt" ? "transformers.Trainer"
                                                             : "";
  if (*loop == '\0')
    keys.refuse("stage", "found " + quote(stage) +
                             ": LLaMA-Factory's own trainer of it is not supported yet; expected sft, pt, rm, dpo or "
                             "kto");
  context.ledger.put("/training/loop/name", loop);
  keys.note("stage", "/training/loop/name");
  context.take_model(keys, "model_name_or_path");
  const Composite* parts = composite_of(context.model_config());
  keys.take("cutoff_len");
  const bool packs = keys.has("packing") ? keys.truth("packing") : stage == "pt";
  keys.mark("packing");
  if (keys.truth("neat_packing")) {
    const std::int64_t length = keys.size("cutoff_len"),
                       size = std::min<std::int64_t>(keys.size("per_device_train_batch_size"), 4096);
    keys.leave_out("neat_packing", Effect::more,
                   "a mask of all pairs of tokens in half precision, unless FlashAttention-2 runs",
                   2 * length * length * size);
  } else if (packs) {
    keys.note("packing", "/data/sequence_length");  // rows are full, as samples are taken to be
  }
  const Autocast autocast = autocast_of(context, keys);
  const bool is_pure = keys.truth("pure_bf16");
  const std::string tuning = keys.text("finetuning_type");
  // init_adapter: what trains is float32 unless pure_bf16; the rest is as published (loader.py: load_model).
  const bool is_full = tuning == "full";
  const std::string published = is_full && !is_pure ? "fp32" : context.published_dtype(keys);
  context.take_precision(keys, is_full ? "pure_bf16" : "model_name_or_path", published, autocast.key, autocast.dtype);
  if (is_full) {
    keys.take("finetuning_type", "/training/stage", "full");
    if (parts)
      if (const std::vector<std::string> frozen = frozen_modules(keys, *parts); !frozen.empty()) {
        context.ledger.put("/training/stage", "custom");
        keys.take("freeze_vision_tower", "/training/freeze", frozen);
        keys.leave_out("pure_bf16", Effect::less, "what is frozen stays in the published type, here it is float32");
      }
  } else if (tuning == "lora") {
    keys.note("finetuning_type", "/training/lora");
    take_factory_lora(context, keys, parts);
    if (is_pure && published != "fp32") keys.take("pure_bf16", "/training/lora/autocast_adapter_dtype", true);
  } else if (tuning == "oft") {
    take_oft(context, keys, parts);
  } else {
    keys.refuse("finetuning_type",
                "found " + quote(tuning) + ", which is not supported yet; expected full, lora or oft");
  }
  take_preferences(context, keys, stage, is_full, is_pure);
  const std::string computes = is_pure                  ? "bf16"
                               : autocast.dtype.empty() ? context.published_dtype(keys)
                                                        : autocast.dtype;
  take_quantization(context, keys, computes);
  // prepare_model_for_training calls it with use_reentrant_gc; FSDP2 wants it otherwise.
  const bool fsdp2 = member(member(context.launch.accelerate, "fsdp_config"), "fsdp_version") == 2;
  const bool checkpoints = !keys.truth("disable_gradient_checkpointing");
  const bool reentrant = keys.truth("use_reentrant_gc") && !fsdp2;
  keys.take(checkpoints ? "use_reentrant_gc" : "disable_gradient_checkpointing", "/training/activation_checkpointing",
            !checkpoints ? "none"
            : reentrant  ? "reentrant"
                         : "non-reentrant");
  for (const char* key : {"gradient_checkpointing", "gradient_checkpointing_kwargs", "activation_checkpointing",
                          "activation_checkpointing_kwargs"})
    keys.ignore(key);
  take_attention(context, keys);
  // Of its default kernels one runs on CUDA, and it knows these (v1/plugins/model_plugins/kernels/ops/mlp/
  // cuda_fused_moe.py: _TRITON_MOE_MAPPING).
  if (const json type = member(context.model_config(), "model_type");
      type.is_string() && !is_word_of(type.get<std::string>(), "mixtral qwen3_moe qwen3_5_moe qwen3_5_moe_text"))
    keys.ignore("use_v1_kernels");
  if (keys.truth("enable_liger_kernel")) keys.take("enable_liger_kernel", "/training/liger", true);
  take_training_arguments(context, keys);
  if (tuning == "lora" && !keys.has("ddp_find_unused_parameters") && context.launch.is_of_several())
    keys.take("ddp_find_unused_parameters", "/training/loop/args/ddp_find_unused_parameters", false);
  // They change videos alone, and the project's datasets that have some say so (data/dataset_info.json:
  // mllm_video_demo, mllm_video_audio_demo).
  const std::vector<std::string> datasets = keys.names("dataset");
  if (!datasets.empty() && std::none_of(datasets.begin(), datasets.end(), [](const std::string& name) {
        return name.find("video") != std::string::npos;
      }))
    for (const char* key : {"video_max_pixels", "video_maxlen", "video_fps"}) keys.ignore(key);
  const bool is_qwen_vl = parts && std::string_view(parts->model_type).find("_vl") != std::string_view::npos;
  for (const char* key : {"image_max_pixels", "image_min_pixels"}) {
    if (is_qwen_vl)
      keys.take(key);
    else if (parts)
      keys.leave_out(key, Effect::less, "smaller images, where the model takes images of any size");
    else
      keys.ignore(key);
  }
}

}  // namespace oometer::importers
