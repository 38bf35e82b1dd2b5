#include "job/loop.h"

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "config/reader.h"
#include "job/optimizers.h"
#include "job/read.h"
#include "runtime/trl_behaviours.h"

namespace oometer {

using nlohmann::json;

namespace {

constexpr const char* kArguments = "/training/loop/args";

/// A trainer that may be named, and the class of its arguments.
struct Trainer {
  std::string_view name, arguments;
  bool is_trl() const { return name.starts_with("trl."); }
  bool is_llamafactory() const { return name.starts_with("llamafactory."); }
  bool is_llava() const { return name.starts_with("llava."); }
};
constexpr Trainer kTrainers[] = {{"transformers.Trainer", "TrainingArguments"},
                                 {"llava.LLaVATrainer", "llava.train.train.TrainingArguments"},
                                 {"trl.SFTTrainer", "SFTConfig"},
                                 {"trl.DPOTrainer", "DPOConfig"},
                                 {"trl.KTOTrainer", "KTOConfig"},
                                 {"trl.RewardTrainer", "RewardConfig"},
                                 {"trl.experimental.orpo.ORPOTrainer", "ORPOConfig"},
                                 {"llamafactory.PairwiseTrainer", "FinetuningArguments"},
                                 {"llamafactory.CustomDPOTrainer", "FinetuningArguments"},
                                 {"llamafactory.CustomKTOTrainer", "FinetuningArguments"}};

/// What an argument that TrainingArguments does not have is to the job: TRL's, and LLaMA-Factory's of preferences.
enum class Use : std::uint8_t {
  harmless,  ///< changes no memory of the device
  spelled,   ///< is said in the job's own words
  read,      ///< stays among the loop's arguments
  refused,   ///< decides memory and is not modelled: only what is as good as absent is taken
};
struct OwnArgument {
  std::string_view name;
  Use use;
  std::string_view of;  ///< the arguments' classes that have it (trl 1.16, llamafactory 0.9.5), with blanks between
};
constexpr std::string_view kLlavaArguments = "llava.train.train.TrainingArguments";
constexpr OwnArgument kOwnArguments[] = {
    {"activation_offloading", Use::read, "SFTConfig DPOConfig KTOConfig RewardConfig TrainingArguments"},
    {"assistant_only_loss", Use::spelled, "SFTConfig"},
    {"beta", Use::harmless, "DPOConfig KTOConfig ORPOConfig"},
    {"bits", Use::spelled, kLlavaArguments},
    {"cache_dir", Use::harmless, kLlavaArguments},
    {"center_rewards_coefficient", Use::read, "RewardConfig"},
    {"chat_template_path", Use::spelled, "SFTConfig RewardConfig"},
    {"completion_only_loss", Use::spelled, "SFTConfig"},
    {"dataset_kwargs", Use::harmless, "SFTConfig"},
    {"dataset_num_proc", Use::harmless, "SFTConfig DPOConfig KTOConfig RewardConfig ORPOConfig"},
    {"dataset_text_field", Use::harmless, "SFTConfig"},
    {"desirable_weight", Use::harmless, "KTOConfig"},
    {"disable_dropout", Use::read, "DPOConfig KTOConfig RewardConfig ORPOConfig"},
    {"discopop_tau", Use::harmless, "DPOConfig"},
    {"double_quant", Use::harmless, kLlavaArguments},
    {"dpo_label_smoothing", Use::harmless, "FinetuningArguments"},
    {"eos_token", Use::harmless, "SFTConfig RewardConfig"},
    {"eval_packing", Use::spelled, "SFTConfig"},
    {"evaluation_strategy", Use::spelled, kLlavaArguments},
    {"f_alpha_divergence_coef", Use::harmless, "DPOConfig"},
    {"f_divergence_type", Use::spelled, "DPOConfig"},
    {"freeze_mm_mlp_adapter", Use::refused, kLlavaArguments},
    {"generate_during_eval", Use::refused, "ORPOConfig"},
    {"group_by_modality_length", Use::harmless, kLlavaArguments},
    {"is_encoder_decoder", Use::refused, "ORPOConfig"},
    {"kto_chosen_weight", Use::harmless, "FinetuningArguments"},
    {"kto_rejected_weight", Use::harmless, "FinetuningArguments"},
    {"label_smoothing", Use::harmless, "DPOConfig"},
    {"ld_alpha", Use::read, "DPOConfig FinetuningArguments"},
    {"lora_alpha", Use::spelled, kLlavaArguments},
    {"lora_bias", Use::spelled, kLlavaArguments},
    {"lora_dropout", Use::spelled, kLlavaArguments},
    {"lora_enable", Use::spelled, kLlavaArguments},
    {"lora_r", Use::spelled, kLlavaArguments},
    {"lora_weight_path", Use::refused, kLlavaArguments},
    {"loss_type", Use::read, "SFTConfig DPOConfig KTOConfig FinetuningArguments"},
    {"loss_weights", Use::harmless, "DPOConfig"},
    {"max_completion_length", Use::harmless, "ORPOConfig"},
    {"max_length", Use::read, "SFTConfig DPOConfig KTOConfig RewardConfig ORPOConfig"},
    {"mm_projector_lr", Use::spelled, kLlavaArguments},
    {"model_init_kwargs", Use::spelled, "SFTConfig DPOConfig KTOConfig RewardConfig ORPOConfig"},
    {"model_max_length", Use::spelled, kLlavaArguments},
    {"mpt_attn_impl", Use::harmless, kLlavaArguments},
    {"packing", Use::spelled, "SFTConfig"},
    {"packing_strategy", Use::spelled, "SFTConfig"},
    {"pad_to_multiple_of", Use::spelled, "SFTConfig DPOConfig KTOConfig RewardConfig"},
    {"pad_token", Use::harmless, "SFTConfig DPOConfig RewardConfig"},
    {"padding_free", Use::read, "SFTConfig DPOConfig"},
    {"padding_value", Use::harmless, "ORPOConfig"},
    {"precompute_ref_batch_size", Use::harmless, "DPOConfig KTOConfig"},
    {"precompute_ref_log_probs", Use::read, "DPOConfig KTOConfig"},
    {"pref_bco_weight", Use::spelled, "FinetuningArguments"},
    {"pref_beta", Use::harmless, "FinetuningArguments"},
    {"pref_ftx", Use::read, "FinetuningArguments"},
    {"pref_loss", Use::spelled, "FinetuningArguments"},
    {"quant_type", Use::harmless, kLlavaArguments},
    {"ref_model_mixup_alpha", Use::harmless, "DPOConfig KTOConfig"},
    {"ref_model_sync_steps", Use::harmless, "DPOConfig KTOConfig"},
    {"router_aux_loss_coef", Use::spelled, "SFTConfig DPOConfig KTOConfig"},
    {"shuffle_dataset", Use::harmless, "SFTConfig"},
    {"simpo_gamma", Use::harmless, "FinetuningArguments"},
    {"sync_ref_model", Use::refused, "DPOConfig KTOConfig"},
    {"truncation_mode", Use::harmless, "SFTConfig DPOConfig"},
    {"trust_remote_code", Use::harmless, "SFTConfig DPOConfig KTOConfig RewardConfig ORPOConfig"},
    {"undesirable_weight", Use::harmless, "KTOConfig"},
    {"use_weighting", Use::refused, "DPOConfig"}};

/// Whether a word stands among words with blanks between.
bool is_among(std::string_view word, std::string_view words) {
  while (!words.empty()) {
    const std::size_t end = std::min(words.find(' '), words.size());
    if (words.substr(0, end) == word) return true;
    words.remove_prefix(std::min(end + 1, words.size()));
  }
  return false;
}

/// Fields of TrainingArguments (transformers 5.23) that change no memory of the device.
constexpr std::string_view kHarmless[] = {"accelerator_config",
                                          "adam_beta1",
                                          "adam_beta2",
                                          "adam_epsilon",
                                          "data_seed",
                                          "dataloader_drop_last",
                                          "dataloader_in_order",
                                          "dataloader_multiprocessing_context",
                                          "dataloader_persistent_workers",
                                          "dataloader_pin_memory",
                                          "dataloader_prefetch_factor",
                                          "ddp_backend",
                                          "ddp_timeout",
                                          "debug",
                                          "disable_tqdm",
                                          "do_eval",
                                          "do_predict",
                                          "do_train",
                                          "enable_jit_checkpoint",
                                          "eval_delay",
                                          "full_determinism",
                                          "greater_is_better",
                                          "hub_always_push",
                                          "hub_model_id",
                                          "hub_private_repo",
                                          "hub_revision",
                                          "hub_strategy",
                                          "hub_token",
                                          "ignore_data_skip",
                                          "label_names",
                                          "learning_rate",
                                          "length_column_name",
                                          "load_best_model_at_end",
                                          "local_rank",
                                          "log_level",
                                          "log_level_replica",
                                          "log_on_each_node",
                                          "logging_dir",
                                          "logging_first_step",
                                          "logging_nan_inf_filter",
                                          "logging_steps",
                                          "logging_strategy",
                                          "lr_scheduler_kwargs",
                                          "lr_scheduler_type",
                                          "metric_for_best_model",
                                          "num_train_epochs",
                                          "output_dir",
                                          "project",
                                          "push_to_hub",
                                          "remove_unused_columns",
                                          "report_to",
                                          "restore_callback_states_from_checkpoint",
                                          "resume_from_checkpoint",
                                          "run_name",
                                          "save_on_each_node",
                                          "save_only_model",
                                          "save_total_limit",
                                          "seed",
                                          "skip_memory_metrics",
                                          "tf32",
                                          "trackio_bucket_id",
                                          "trackio_space_id",
                                          "trackio_static_space_id",
                                          "warmup_ratio",
                                          "warmup_steps"};

/// Fields that decide memory and are not modelled: only what is as good as absent is taken.
constexpr const char* kNotModelled[] = {
    "auto_find_batch_size", "batch_eval_metrics",  "bf16_full_eval",     "eval_on_start", "eval_use_gather_object",
    "fp16_full_eval",       "include_for_metrics", "parallelism_config", "use_cache",     "use_cpu"};

/// The job while it is rewritten.
class Spelling {
 public:
  Spelling(json& job, const Trainer& trainer)
      : job_(job),
        trainer_(trainer),
        given_(job["training"]["loop"].value("args", json::object())),
        args_(&given_, kArguments, Mode::strict, findings_) {}

  std::optional<Error> run() {
    const auto set = [this](const char* argument, const char* pointer, json fallback) {
      say(argument, pointer, args_.has(argument) ? *args_.find(argument) : json(), std::move(fallback));
    };
    spell_deepspeed();
    spell_sampling();
    const bool has_lengths = has("/data/lengths/batches") && !has("/data/packed");
    set("per_device_train_batch_size", "/data/micro_batch_size", has_lengths ? json() : json(8));
    set("gradient_accumulation_steps", "/training/gradient_accumulation_steps", {});
    set("max_grad_norm", "/training/max_grad_norm", 1.0);
    set("dataloader_num_workers", "/host/data_workers", {});
    take_own_arguments();
    if (trainer_.is_trl()) spell_trl();
    if (trainer_.is_llamafactory()) spell_llamafactory();
    if (trainer_.is_llava()) spell_llava();
    spell_precision();
    const bool is_trl_in_zero_3 = trainer_.is_trl() && is_run_by("deepspeed") && zero_stage() == 3;
    if (is_trl_in_zero_3 && compares_with_reference()) check_reference_in_zero_3();
    if (is_run_by("deepspeed")) take_engine_precision();
    if (is_trl_in_zero_3) keep_adapters_dtype();
    spell_fsdp();
    spell_checkpointing();
    if (is_trl_in_zero_3 && has_adapters()) reenter();
    spell_optimizer();
    spell_liger();
    spell_compile();
    for (const char* key : kNotModelled) refuse(key);
    spell_ddp();
    if (const json* concat = args_.find("eval_do_concat_batches"); concat && *concat != true)
      args_.fail_found("eval_do_concat_batches", "not-modelled", "expected true: lists are not supported yet");
    for (const std::string_view key : kHarmless) given_.erase(std::string(key));
    if (findings_.error) return findings_.error;
    for (const char* key : taken_) given_.erase(key);
    job_["training"]["loop"]["args"] = std::move(given_);
    return std::nullopt;
  }

 private:
  static bool is_absent(const json& value) { return value.is_null() || value == false || value.empty(); }
  bool has(const char* pointer) const {
    const json::json_pointer at(pointer);
    return job_.contains(at) && !job_.at(at).is_null();
  }

  void refuse(const char* key) {
    taken_.push_back(key);
    if (const json* value = args_.find(key); value && !is_absent(*value))
      args_.fail_found(key, "not-modelled", kNotYet);
  }

  /// `value`: what the argument says in the job's words; null: nothing.
  void say(const char* argument, const char* pointer, json value, json fallback) {
    taken_.push_back(argument);
    const json::json_pointer at(pointer);
    if (!job_.contains(at)) {
      if (value.is_null()) value = std::move(fallback);
      if (!value.is_null()) job_[at] = std::move(value);
      return;
    }
    if (!value.is_null() && job_[at] != value)
      args_.fail_found(argument, "inconsistent",
                       "the job's " + std::string(pointer) + " is " + describe(job_[at]) + ": leave one of them out");
  }

  void spell_precision() {
    taken_.insert(taken_.end(), {"bf16", "fp16"});
    json& training = job_["training"];
    json precision = training.value("precision", json());
    const bool fp16 = args_.boolean("fp16", false);
    // _BaseConfig.__post_init__ (trl): bf16 is on unless fp16 is. A model that is given by name is loaded as float32.
    const bool is_said =
        (precision.is_object() && precision.contains("autocast")) || precision == "amp-bf16" || precision == "amp-fp16";
    const bool bf16 = args_.boolean("bf16", trainer_.is_trl() && !fp16 && !is_said);
    const char* const usual = trainer_.is_trl() ? "fp32" : "bf16";
    if (bf16 && fp16)
      return args_.fail_found("fp16", "inconsistent", "bf16 is true too, and Trainer takes one of them: leave one out");
    const json autocast = bf16 ? json("bf16") : fp16 ? json("fp16") : json();
    const bool says_none = (args_.has("bf16") || args_.has("fp16")) && autocast.is_null();
    if (precision == "amp-bf16" || precision == "amp-fp16")
      precision = {{"weights", "fp32"}, {"autocast", precision == "amp-bf16" ? "bf16" : "fp16"}};
    if (precision.is_object() && precision.contains("autocast")) {
      const json& own = precision["autocast"];
      if ((!autocast.is_null() && own != autocast) || (says_none && !own.is_null()))
        args_.fail_found(args_.has("bf16") ? "bf16" : "fp16", "inconsistent",
                         "training.precision's autocast is " + describe(own) + ": leave one of them out");
      return;
    }
    if (autocast.is_null()) {
      if (precision.is_null() && trainer_.is_trl()) training["precision"] = usual;
      return;
    }
    if (precision.is_object()) {
      training["precision"]["autocast"] = autocast;
    } else {
      training["precision"] = {{"weights", precision.is_null() ? json(usual) : precision}, {"autocast", autocast}};
    }
  }

  /// The order in which samples come. Full ones are alike in any.
  void spell_sampling() {
    taken_.push_back("train_sampling_strategy");
    const json* sampling = args_.find("train_sampling_strategy");
    if (!sampling || sampling->is_null() || *sampling == "random" || *sampling == "sequential") return;
    if (*sampling != "group_by_length" && *sampling != "batch_rebalance")
      return args_.fail_found("train_sampling_strategy", "unknown-choice",
                              "expected random, sequential, group_by_length or batch_rebalance");
    if (!has("/data/lengths") && !has("/data/packed")) return;
    if (*sampling == "batch_rebalance") return args_.fail_found("train_sampling_strategy", "not-modelled", kNotYet);
    if (trainer_.is_trl() && trainer_.name != "trl.SFTTrainer")
      return args_.fail_found("train_sampling_strategy", "inconsistent",
                              "LengthGroupedSampler asks samples for their input_ids, which those of " +
                                  std::string(trainer_.name) + " do not have: leave it out");
    if (has("/data/packed") || args_.boolean("packing", false))
      return args_.fail_found("train_sampling_strategy", "not-modelled",
                              "packed rows in the order of their lengths are not supported yet: leave one of them out");
    json& lengths = job_["data"]["lengths"];
    if (!lengths.is_object()) return;
    if (lengths.contains("batches")) pour_out(lengths);
    if (!lengths.contains("batches")) lengths["grouped"] = true;
  }

  /// Micro-batches as the data set that a sampler takes its own from.
  void pour_out(json& lengths) {
    json histogram = json::array();
    std::size_t rows = 0, most = 0;
    for (const json& batch : lengths["batches"]) {
      if (!batch.is_array()) return;  // which the reader of data says
      for (const json& length : batch) {
        if (!length.is_number_integer()) return;
        const auto bar =
            std::find_if(histogram.begin(), histogram.end(), [&](const json& b) { return b[0] == length; });
        if (bar == histogram.end())
          histogram.push_back({length, 1});
        else
          (*bar)[1] = (*bar)[1].get<std::int64_t>() + 1;
      }
      ++rows;
      most = std::max(most, batch.size());
    }
    if (histogram.size() < 2) return;  // all alike, in any order
    lengths.erase("batches");
    lengths["histogram"] = std::move(histogram);
    json& data = job_["data"];
    if (!data.contains("micro_batch_size") && !args_.has("per_device_train_batch_size"))
      data["micro_batch_size"] = most;
    const json of_step = args_.has("gradient_accumulation_steps") ? *args_.find("gradient_accumulation_steps")
                         : has("/training/gradient_accumulation_steps")
                             ? job_["training"]["gradient_accumulation_steps"]
                             : json(1);
    if (!data.contains("steps") && of_step.is_number_integer() && of_step > 0)
      data["steps"] = std::max<std::size_t>(2, (rows + of_step.get<std::size_t>() - 1) / of_step.get<std::size_t>());
  }

  /// What the job's version of TRL does.
  TrlBehaviours trl() const {
    const json::json_pointer at("/runtime/trl");
    if (!job_.contains(at) || !job_.at(at).is_string()) return {};
    const Result<Version> version = parse_version(job_.at(at).get<std::string>());
    return version ? resolve_trl_behaviours(*version) : TrlBehaviours();
  }

  bool is_run_by(const char* strategy) const {
    const json::json_pointer at("/parallel/strategy");
    return job_.contains(at) && job_.at(at) == strategy;
  }

  /// `deepspeed`: a ds_config, which the job has as parallel.ds_config.
  void spell_deepspeed() {
    taken_.push_back("deepspeed");
    const json* config = args_.find("deepspeed");
    if (!config || is_absent(*config)) return;
    if (!config->is_object())
      return args_.fail_found("deepspeed", "missing",
                              "expected what that file holds, {...}, here or in parallel.ds_config");
    say("deepspeed", "/parallel/ds_config", *config, {});
    json& parallel = job_["parallel"];
    if (!parallel.contains("strategy")) parallel["strategy"] = "deepspeed";
  }

  /// Words of `fsdp`, as it was said before it was true or false.
  static std::string words_of(const json& fsdp) {
    std::string words;
    for (const json& word : fsdp.is_array() ? fsdp : json::array({fsdp}))
      if (word.is_string()) words += word.get<std::string>() + " ";
    return words;
  }

  /// `fsdp` and `fsdp_config` (TrainingArguments._process_fsdp_args, 5.23), which the job has as parallel.fsdp.
  void spell_fsdp() {
    taken_.insert(taken_.end(), {"fsdp", "fsdp_config"});
    const json* fsdp = args_.find("fsdp");
    const bool is_asked = fsdp && !is_absent(*fsdp), is_run = is_run_by("fsdp1") || is_run_by("fsdp2");
    args_.ignore({"fsdp_config"});
    if (!is_asked && !(is_run && args_.has("fsdp_config"))) return;
    json given = json::object();
    if (const json* config = args_.find("fsdp_config"); config && config->is_object())
      for (const auto& [key, value] : config->items()) given[key.starts_with("fsdp_") ? key.substr(5) : key] = value;
    else if (config && !config->is_null())
      return args_.fail_found("fsdp_config", "missing", "expected what that file holds, {...}");
    ConfigReader config(&given, std::string(kArguments) + "/fsdp_config", Mode::strict, findings_);
    const std::int64_t version = config.integer("version", is_run_by("fsdp1") ? 1 : 2, {1, 2});
    const std::string words = is_asked ? words_of(*fsdp) : "";
    json& parallel = job_["parallel"];
    const json strategy = version == 1 ? "fsdp1" : "fsdp2";
    if (!parallel.contains("strategy")) parallel["strategy"] = strategy;
    if (parallel["strategy"] != strategy)
      return args_.fail_found("fsdp_config", "inconsistent",
                              "the job's /parallel/strategy is " + describe(parallel["strategy"]) +
                                  ", and its version, " + std::to_string(version) + ", says another");
    json options = json::object();
    if (config.boolean("cpu_offload", is_among("offload", words))) options["cpu_offload"] = true;
    if (version == 2) {
      options["reshard_after_forward"] = config.boolean("reshard_after_forward", !is_among("shard_grad_op", words));
    } else {
      // accelerate 1.15 takes FSDP_SHARDING_STRATEGY before what it is given as reshard_after_forward.
      config.ignore({"reshard_after_forward"});
      std::string prefetch = config.text("backward_prefetch", "NO_PREFETCH");
      for (char& c : prefetch) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
      options["backward_prefetch"] = prefetch == "NO_PREFETCH" ? json() : json(prefetch);
      options["forward_prefetch"] = config.boolean("forward_prefetch", false);
      options["use_orig_params"] = config.boolean("use_orig_params", true);
      options["sync_module_states"] = config.boolean("sync_module_states", true);
    }
    // With fully_shard the shards are made on meta then, and filled before the first step.
    if (config.boolean("cpu_ram_efficient_loading", false) && version == 1)
      config.fail_found("cpu_ram_efficient_loading", "not-modelled", kNotYet);
    const std::string policy = config.text("auto_wrap_policy", "TRANSFORMER_BASED_WRAP");
    if (policy != "TRANSFORMER_BASED_WRAP")
      config.fail_found("auto_wrap_policy", "not-modelled",
                        "expected TRANSFORMER_BASED_WRAP: others are not supported yet");
    if (const json* wrap = config.find("transformer_layer_cls_to_wrap"); wrap && !wrap->is_null())
      options["wrap"] = wrap->is_array() ? *wrap : json::array({*wrap});
    if (config.boolean("activation_checkpointing", false)) {
      if (args_.find("gradient_checkpointing") && args_.boolean("gradient_checkpointing", false))
        return config.fail_found("activation_checkpointing", "inconsistent",
                                 "gradient_checkpointing is true too, and Trainer takes one of them: leave one out");
      if (!trainer_.is_trl())
        say("activation_checkpointing", "/training/activation_checkpointing", "non-reentrant", {});
    }
    config.ignore(
        {"min_num_params", "limit_all_gathers", "state_dict_type", "xla", "xla_fsdp_v2", "xla_fsdp_grad_ckpt"});
    config.finish();
    if (!parallel.contains("fsdp")) parallel["fsdp"] = json::object();
    if (!parallel["fsdp"].is_object()) return;
    for (const auto& [key, value] : options.items())
      if (!parallel["fsdp"].contains(key)) parallel["fsdp"][key] = value;
  }

  bool has_adapters() const { return has("/training/lora") || has("/training/ia3") || has("/training/peft"); }

  json zero_stage() const {
    for (const char* pointer : {"/parallel/zero_stage", "/parallel/ds_config/zero_optimization/stage"})
      if (has(pointer)) return job_.at(json::json_pointer(pointer));
    return {};
  }

  /// TRL calls get_peft_model with autocast_adapter_dtype=False: ZeRO-3 wants persistent parameters of one type.
  void keep_adapters_dtype() {
    json& training = job_["training"];
    const auto keep = [](json& adapter) {
      if (adapter.is_object() && !adapter.contains("autocast_adapter_dtype")) adapter["autocast_adapter_dtype"] = false;
    };
    for (const char* key : {"lora", "ia3"})
      if (training.contains(key)) keep(training[key]);
    if (!training.contains("peft")) return;
    json& peft = training["peft"];
    if (peft.is_array())
      for (json& adapter : peft) keep(adapter);
    else
      keep(peft);
  }

  /// The engine holds the weights in autocast's type, and does not autocast. Without one it leaves them as they are.
  void take_engine_precision() {
    json& precision = job_["training"]["precision"];
    // HfTrainerDeepSpeedConfig.trainer_config_process (transformers 5.23): what "auto" is.
    const json own = precision == "amp-bf16"   ? json("bf16")
                     : precision == "amp-fp16" ? json("fp16")
                     : precision.is_object()   ? precision.value("autocast", json())
                                               : json();
    for (const std::string block : {"bf16", "fp16"})
      if (const json::json_pointer enabled("/parallel/ds_config/" + block + "/enabled");
          job_.contains(enabled) && job_[enabled] == "auto")
        job_[enabled] = own == block;
    if (precision == "amp-bf16" || precision == "amp-fp16") precision = precision == "amp-bf16" ? "bf16" : "fp16";
    if (precision.is_object()) {
      const json autocast = precision.value("autocast", json());
      precision = autocast.is_null() ? precision.value("weights", json("fp32")) : autocast;
    }
    if (precision.is_null()) job_["training"].erase("precision");
  }

  /// What Trainer._build_accelerator_args gives to DistributedDataParallel. Unused parameters are looked for unless the
  /// model checkpoints; a model with adapters is peft's, of which that is not known.
  void spell_ddp() {
    const json training = job_.value("training", json::object());
    const bool is_ddp = is_run_by("ddp");
    const json checkpointing = training.value("activation_checkpointing", json("none"));
    const bool checkpoints =
        checkpointing != "none" && (!checkpointing.is_object() || checkpointing.value("mode", json()) != "none");
    const auto say_of_ddp = [&](const char* argument, const char* pointer, json fallback) {
      if (is_ddp) {
        const json* given = args_.find(argument);
        say(argument, pointer, given ? *given : json(), std::move(fallback));
      } else {
        taken_.push_back(argument);  // no other strategy reads it
        args_.ignore({argument});
      }
    };
    // TRL's trainers ask for it of models that take images, too: read_ddp knows the model.
    say_of_ddp("ddp_find_unused_parameters", "/parallel/ddp/find_unused_parameters",
               trainer_.is_trl() ? json() : json(has_adapters() || !checkpoints));
    say_of_ddp("ddp_bucket_cap_mb", "/parallel/ddp/bucket_cap_mb", {});
    say_of_ddp("ddp_broadcast_buffers", "/parallel/ddp/broadcast_buffers", {});
    say_of_ddp("ddp_static_graph", "/parallel/ddp/static_graph", {});
  }

  void spell_checkpointing() {
    // Fields of both names, of which the newer one is the older one's alias.
    const char* const key =
        args_.has("activation_checkpointing") ? "activation_checkpointing" : "gradient_checkpointing";
    const char* const options_key = args_.has("activation_checkpointing_kwargs") ? "activation_checkpointing_kwargs"
                                                                                 : "gradient_checkpointing_kwargs";
    taken_.insert(taken_.end(), {"activation_checkpointing", "activation_checkpointing_kwargs",
                                 "gradient_checkpointing", "gradient_checkpointing_kwargs"});
    json value;
    if (args_.has(key) || (trainer_.is_trl() && args_.has(options_key))) {  // which is on by default there
      ConfigReader options = args_.object(options_key);
      const bool reentrant = options.boolean("use_reentrant", trainer_.is_llava());
      options.ignore({"preserve_rng_state", "determinism_check", "debug"});
      if (trainer_.is_trl() && options.boolean("selective", false))
        options.fail_found("selective", "not-modelled", "selective checkpointing is not supported yet: leave it out");
      options.finish();
      value = !args_.boolean(key, trainer_.is_trl()) ? "none" : reentrant ? "reentrant" : "non-reentrant";
    }
    args_.ignore({options_key});
    has_checkpointing_options_ = args_.has(options_key);
    say(key, "/training/activation_checkpointing", std::move(value),
        trainer_.is_trl() ? json("non-reentrant") : json());
  }

  /// "PEFT + DeepSpeed ZeRO-3 requires reentrant checkpointing" (SFTTrainer.__init__, trl 1.16): written into
  /// gradient_checkpointing_kwargs, of which transformers 5.23 reads the newer name. They are one dictionary where one
  /// was given; where none was, the older name alone gets a new one, and Trainer does not see it.
  void reenter() {
    json& checkpointing = job_["training"]["activation_checkpointing"];
    json& mode = checkpointing.is_object() && checkpointing.contains("mode") ? checkpointing["mode"] : checkpointing;
    if (mode != "non-reentrant") return;
    if (has_checkpointing_options_)
      mode = "reentrant";
    else if (compares_with_reference())
      args_.fail("", "not-modelled",
                 "found checkpointing without gradient_checkpointing_kwargs; with adapters under ZeRO-3 " +
                     std::string(trainer_.name) +
                     " changes it from non-reentrant to reentrant after the reference's first forward "
                     "(disable_gradient_checkpointing), which is not supported yet; expected "
                     "\"gradient_checkpointing_kwargs\": {\"use_reentrant\": true}, or no checkpointing");
  }

  bool compares_with_reference() const {
    return trainer_.arguments == "DPOConfig" || trainer_.arguments == "KTOConfig";
  }

  /// What else of a reference was not compared under ZeRO-3.
  void check_reference_in_zero_3() {
    const json reference = job_["model"].is_object() ? job_["model"].value("reference", json()) : json();
    if (args_.boolean("precompute_ref_log_probs", false) || reference == "precomputed")
      // _precompute_ref_logps leaves an engine of its own around the policy, whose hooks stay.
      args_.fail("", "not-modelled",
                 "found a reference that is computed before under ZeRO-3, which is not supported yet: leave out "
                 "precompute_ref_log_probs");
    const json& precision = job_["training"]["precision"];
    if ((!has_adapters() || reference == "copy") && precision.is_object() &&
        precision.value("weights", json()) == "fp32" && !precision.value("autocast", json()).is_null())
      args_.fail(
          "", "not-modelled",
          "found float32 weights and a reference of its own under ZeRO-3, where zero.Init casts each of them as it "
          "is made, which is not supported yet; expected training.precision \"bf16\" (model_init_kwargs: dtype)");
  }

  /// A backend or a mode turns it on, too (TrainingArguments.__post_init__).
  void spell_compile() {
    bool compiles = args_.boolean("torch_compile", false);
    for (const char* key : {"torch_compile_backend", "torch_compile_mode"}) {
      compiles = compiles || (args_.find(key) && !is_absent(*args_.find(key)));
      args_.ignore({key});
      taken_.push_back(key);
    }
    say("torch_compile", "/training/torch_compile", compiles ? json(true) : json(), {});
  }

  void spell_optimizer() {
    taken_.insert(taken_.end(), {"optim", "optim_args", "optim_target_modules", "weight_decay"});
    json& training = job_["training"];
    if (args_.has("optim")) {
      const Result<json> spelled =
          optimizer_of_optim(args_.text("optim", ""), args_.has("optim_args") ? args_.text("optim_args", "") : "");
      if (!spelled)
        return args_.fail(spelled.error().pointer.c_str(), spelled.error().code.c_str(), spelled.error().message);
      merge_optimizer(training["optimizer"], *spelled);
    }
    args_.ignore({"optim_args"});
    spell_target_modules(training["optimizer"]);
    const double weight_decay = args_.number("weight_decay", 0, -1e9, 1e9);
    if (const json::json_pointer of_deepspeed("/parallel/ds_config/optimizer/params/weight_decay");
        job_.contains(of_deepspeed) && job_[of_deepspeed] == "auto")
      job_[of_deepspeed] = weight_decay;
    if (weight_decay == 0 || !args_.has("optim") || !copies_for_weight_decay(training["optimizer"])) return;
    training["optimizer"]["args"]["weight_decay"] = weight_decay;
  }

  /// Of optimizers that take none the trainer reads none.
  void spell_target_modules(json& optimizer) {
    const json* targets = args_.find("optim_target_modules");
    if (!targets || targets->is_null() || !optimizer.is_object()) return;
    const json name = optimizer.value("name", json());
    if (name != "apollo_torch.APOLLOAdamW" && name != "galore_torch.GaLoreAdamW" &&
        name != "galore_torch.GaLoreAdafactor" && name != "galore_torch.GaLoreAdamW8bit")
      return;
    if (!targets->is_array())
      return args_.fail_found("optim_target_modules", "not-modelled",
                              "expected a list of parts of names: expressions are not supported yet");
    optimizer["args"]["target_modules"] = *targets;
  }

  void merge_optimizer(json& own, const json& spelled) {
    if (own.is_null()) own = json::object();
    if (!own.is_object()) return;
    for (const auto& [key, value] : spelled.items()) {
      if (own.contains(key) && own[key] != value)
        args_.fail_found(
            "optim", "inconsistent",
            "the job's /training/optimizer/" + key + " is " + describe(own[key]) + ": leave one of them out");
      own[key] = value;
    }
  }

  void spell_liger() {
    json value;
    if (args_.has("use_liger_kernel")) value = args_.boolean("use_liger_kernel", false);
    if (const json* kernels = args_.find("liger_kernel_config"); kernels && kernels->is_object() && value == true)
      value = *kernels;
    if (value.is_object() && value.contains("geglu")) {  // Gemma's name of it
      value["swiglu"] = value["geglu"];
      value.erase("geglu");
    }
    taken_.push_back("liger_kernel_config");
    say("use_liger_kernel", "/training/liger", std::move(value), {});
    if (!trainer_.is_trl() || !has("/training/liger")) return;
    if (!trl().fused_head && job_["training"]["liger"] != false)
      return args_.fail("", "not-modelled",
                        "found Liger with a TRL that leaves the loss to it (before 1.15), which is not supported yet; "
                        "expected use_liger_kernel false, or runtime.trl 1.15 or later");
    json& liger = job_["training"]["liger"];  // the head is fused already
    if (liger == true) liger = json::object();
    if (!liger.is_object()) return;
    if (liger.value("fused_linear_cross_entropy", json(false)) == true)
      return args_.fail("", "inconsistent",
                        "found Liger's fused_linear_cross_entropy; " + std::string(trainer_.name) +
                            " has a fused head of its own: set it to false, or leave it out");
    liger["fused_linear_cross_entropy"] = false;
  }

  /// The classes that have it, for people. LLaMA-Factory's is the last of them.
  static std::string owners(const OwnArgument& argument) {
    constexpr std::string_view kLlamaFactory = "FinetuningArguments";
    std::string classes(argument.of);
    for (std::size_t at = classes.rfind(' '), i = 0; at != std::string::npos; at = classes.rfind(' ', at - 1), ++i)
      classes.replace(at, 1, i == 0 ? " and " : ", ");
    const std::size_t at = classes.rfind(kLlamaFactory);
    if (at != std::string::npos) classes.insert(at, "LLaMA-Factory's ");
    return at == 0 ? classes : "trl's " + classes;
  }

  /// Takes out those that are not the loop's own, and refuses another trainer's.
  void take_own_arguments() {
    for (const OwnArgument& argument : kOwnArguments) {
      const std::string name(argument.name);
      const json* value = args_.find(name.c_str());
      if (value == nullptr) continue;
      if (!is_among(trainer_.arguments, argument.of)) {
        args_.fail_found(name.c_str(), "inconsistent",
                         "it is an argument of " + owners(argument) + ", and " + std::string(trainer_.arguments) +
                             " has none of that name: leave it out");
        continue;
      }
      if (argument.use == Use::refused && !is_absent(*value)) args_.fail_found(name.c_str(), "not-modelled", kNotYet);
      if (argument.use != Use::read) taken_.push_back(argument.name.data());
    }
  }

  void spell_trl() {
    if (trainer_.arguments == "ORPOConfig") spell_orpo();
    spell_model_init();
    spell_lengths();
    if (trainer_.name == "trl.SFTTrainer") {
      spell_packing();
      spell_scored();
    } else {
      spell_preferences();
    }
    if (trainer_.name == "trl.KTOTrainer") spell_unpaired();
    spell_loss_type();
    if (const json* coefficient = args_.find("router_aux_loss_coef");
        coefficient && !coefficient->is_null() && *coefficient != 0)
      args_.fail_found("router_aux_loss_coef", "inconsistent",
                       "the model is no mixture of experts that returns its router's logits: leave it out");
    if (const json* path = args_.find("chat_template_path"); path && path->is_string()) {
      const std::string text = path->get<std::string>();
      if (!text.ends_with(".jinja") && !text.ends_with(".j2"))
        args_.fail_found("chat_template_path", "not-modelled",
                         "a tokenizer's template may add tokens and make the embeddings larger, which is not "
                         "supported yet; expected a .jinja file");
    }
  }

  void spell_loss_type() {
    const bool is_sft = trainer_.name == "trl.SFTTrainer", is_dpo = trainer_.name == "trl.DPOTrainer";
    const std::string_view known =
        is_sft   ? "nll dft"
        : is_dpo ? "sigmoid sigmoid_norm hinge ipo exo_pair nca_pair robust bco_pair sppo_hard apo_zero "
                   "apo_down discopop sft"
                 : "kto apo_zero_unpaired";
    const std::string_view usual = known.substr(0, known.find(' '));
    if (!args_.has("loss_type")) return;
    json& loss = given_["loss_type"];
    if (is_dpo && loss.is_array() && loss.size() == 1) loss = json(loss[0]);
    if (is_sft && !trl().fused_head) {  // each of them is said, as not all have the same default
      if (loss == "chunked_nll" && trl().chunked == ChunkedTokens::none)
        return args_.fail_found("loss_type", "unknown-choice", "TRL has it from 1.4 on; expected nll or dft");
      if (loss != "nll" && loss != "dft" && loss != "chunked_nll")
        args_.fail_found("loss_type", "unknown-choice", "expected nll, chunked_nll or dft");
      return;
    }
    if (is_sft && loss == "chunked_nll") loss = "nll";  // SFTConfig.__post_init__: a deprecated alias
    if (!loss.is_string() || !is_among(loss.get<std::string>(), known))
      args_.fail_found("loss_type", is_dpo ? "not-modelled" : "unknown-choice",
                       "expected one of " + std::string(known));
    else if (loss == usual)
      given_.erase("loss_type");
  }

  /// What DPOConfig has beside the others.
  void spell_preferences() {
    refuse("ld_alpha");
    if (const json* divergence = args_.find("f_divergence_type"); divergence && *divergence != "reverse_kl")
      args_.fail_found("f_divergence_type", "not-modelled", "others are not supported yet; expected reverse_kl");
    if (has("/data/packed")) args_.fail("", "inconsistent", "found data.packed; a preference trainer packs nothing");
    given_.erase("padding_free");  // "temporarily unavailable", the trainer warns
  }

  /// What KTOConfig has of its own. Its rows come in their order (train_sampling_strategy "sequential").
  void spell_unpaired() {
    const std::string loss = given_.value("loss_type", "kto");
    const json size = job_["data"].is_object() ? job_["data"].value("micro_batch_size", json()) : json();
    if (loss != "apo_zero_unpaired" && size == 1)
      args_.fail("", "inconsistent",
                 "found micro-batches of one sample; its KL term needs others to mismatch answers with: expected more");
    taken_.push_back("train_sampling_strategy");
    if (const json* sampling = args_.find("train_sampling_strategy");
        sampling && *sampling != "sequential" && *sampling != "random")
      args_.fail_found("train_sampling_strategy", "not-modelled", "expected \"sequential\" or \"random\"");
    given_.erase("train_sampling_strategy");
  }

  /// Its workflows pad to a multiple of 8 tokens (train/*/workflow.py), and pref_loss is the loss.
  void spell_llamafactory() {
    constexpr std::int64_t kPadToMultipleOf = 8;
    json& data = job_["data"];
    if (data.is_null()) data = json::object();
    if (!data.is_object()) return;
    if (has("/data/packed"))
      return args_.fail("", "inconsistent", "found data.packed; a preference trainer packs nothing");
    const json length = data.value("sequence_length", json());
    if (length.is_number_integer() && length.get<std::int64_t>() % kPadToMultipleOf != 0) give_lengths();
    if (has("/data/lengths")) {
      if (data.contains("padding") && data["padding"] != kPadToMultipleOf)
        return args_.fail("", "inconsistent",
                          "found data.padding " + describe(data["padding"]) + "; " + std::string(trainer_.name) +
                              " pads to a multiple of 8: leave it out");
      data["padding"] = kPadToMultipleOf;
    }
    if (const json* sampling = args_.find("train_sampling_strategy"); sampling && *sampling == "group_by_length")
      args_.fail_found("train_sampling_strategy", "not-modelled", kNotYet);
    for (const char* key : {"pref_loss", "loss_type"}) {
      if (!args_.has(key)) continue;
      const json loss = given_[key];
      if (trainer_.name != "llamafactory.CustomDPOTrainer" || !loss.is_string() ||
          !is_among(loss.get<std::string>(), "sigmoid hinge ipo kto_pair orpo simpo"))
        return args_.fail_found(key, "unknown-choice",
                                "expected llamafactory.CustomDPOTrainer with sigmoid, hinge, ipo, kto_pair, orpo or "
                                "simpo");
      given_["loss_type"] = loss;
      if (loss == "sigmoid") given_.erase("loss_type");
    }
    if (args_.number("pref_bco_weight", 0, 0, 1e9) != 0) args_.fail_found("pref_bco_weight", "not-modelled", kNotYet);
  }

  /// train() of llava/train/train.py, around transformers 4.37.2's arguments.
  void spell_llava() {
    json& training = job_["training"];
    const json precision = training.value("precision", json());
    if (!args_.boolean("bf16", precision.is_object() && precision.value("autocast", json()) == "bf16"))
      args_.fail("", "not-modelled",
                 "found no \"bf16\": true, without which weights are in float32 and the tower in float16; that is not "
                 "supported yet");
    if (args_.integer("bits", 16, {4, 16}) != 16)
      args_.fail_found("bits", "not-modelled", "expected 16: LLaVA's QLoRA is not supported yet");
    if (args_.text("evaluation_strategy", "no") != "no")
      args_.fail_found("evaluation_strategy", "inconsistent", "train.py gives no data to evaluate: leave it out");
    if (const json* most = args_.find("model_max_length")) say("model_max_length", "/data/sequence_length", *most, {});
    if (!training.contains("stage")) training["stage"] = "finetune";
    // adamw_torch, which the class has as its own default
    json& optimizer = training["optimizer"];
    if (optimizer.is_null()) optimizer = json::object();
    if (!args_.has("optim") && optimizer.empty()) optimizer["implementation"] = "foreach";
    const json* rate = args_.find("mm_projector_lr");
    if (rate && !rate->is_null() && optimizer.is_object())
      optimizer["param_groups"] = 4;  // create_optimizer: two more, of the projector
    // build_vision_projector, after from_pretrained: in the default type. An engine casts it.
    if (!is_run_by("deepspeed") && !training.contains("float32_modules"))
      training["float32_modules"] = {"mm_projector"};
    spell_llava_adapters();
  }

  void spell_llava_adapters() {
    json& training = job_["training"];
    const bool is_asked = args_.boolean("lora_enable", false);
    const json rank = args_.integer("lora_r", 64, {1, 1 << 20}), alpha = args_.number("lora_alpha", 16, 0, 1e9),
               dropout = args_.number("lora_dropout", 0.05, 0, 1);
    const std::string bias = args_.text("lora_bias", "none");
    if (!is_asked) return;
    if (training.contains("lora"))
      return args_.fail_found("lora_enable", "inconsistent",
                              "the job's /training/lora says which adapters: leave one of them out");
    // find_all_linear_names: the language model's. The projector, made later, trains whole.
    training["lora"] = {
        {"rank", rank},
        {"alpha", alpha},
        {"dropout", dropout},
        {"bias", bias},
        {"target_modules", "(?!.*vision_tower).*\\.(q_proj|k_proj|v_proj|o_proj|gate_proj|up_proj|down_proj)"},
        {"also_train", {"mm_projector"}}};
  }

  /// Its null is 512 tokens (ORPOTrainer.__init__), and it has no multiple to pad to.
  void spell_orpo() {
    if (args_.has("max_length") && given_["max_length"].is_null()) given_["max_length"] = 512;
  }

  /// What from_pretrained is given.
  void spell_model_init() {
    if (!args_.has("model_init_kwargs")) return;
    ConfigReader kwargs = args_.object("model_init_kwargs");
    kwargs.ignore({"revision", "trust_remote_code", "use_cache", "low_cpu_mem_usage", "cache_dir", "device_map"});
    const char* const key = kwargs.has("dtype") ? "dtype" : "torch_dtype";
    if (kwargs.has(key)) {
      const std::string dtype = kwargs.text(key, "");
      const char* const ours = dtype == "bfloat16"  ? "bf16"
                               : dtype == "float16" ? "fp16"
                               : dtype == "float32" ? "fp32"
                                                    : "";
      json& training = job_["training"];
      if (*ours == '\0')
        kwargs.fail_found(key, "unknown-choice", "expected float32, bfloat16 or float16");
      else if (!training.contains("precision"))
        training["precision"] = ours;
      else if (const json& own = training["precision"];
               (own.is_object() ? own.value("weights", json(ours)) : own) != ours)
        kwargs.fail_found(key, "inconsistent",
                          "the job's /training/precision is " + describe(own) + ": leave one of them out");
    }
    if (kwargs.has("attn_implementation")) {
      const std::string attention = kwargs.text("attn_implementation", "");
      json& training = job_["training"];
      if (!training.contains("attention"))
        training["attention"] = attention;
      else if (training["attention"] != attention)
        kwargs.fail_found(
            "attn_implementation", "inconsistent",
            "the job's /training/attention is " + describe(training["attention"]) + ": leave one of them out");
    }
    kwargs.finish();
  }

  /// max_length, of which data.sequence_length is the plain key; and what samples are padded to.
  void spell_lengths() {
    json& data = job_["data"];
    if (data.is_null()) data = json::object();
    if (!data.is_object()) return;
    const json length = data.value("sequence_length", json());
    if (!given_.contains("max_length")) given_["max_length"] = length.is_number_integer() ? length : json(1024);
    const json& most = given_["max_length"];
    const bool is_limited = most.is_number_integer();
    if (is_limited && length.is_number_integer() && length > most && !data.contains("lengths"))
      args_.fail_found("max_length", "inconsistent",
                       "the job's /data/sequence_length is " + describe(length) + ": leave one of them out");
    const bool packs = args_.boolean("packing", false) || data.value("packed", json()).is_string();
    if (is_limited && length.is_null() && !data.contains("packed") && (packs || !data.contains("lengths")))
      data["sequence_length"] = most;
    if (is_limited && length.is_null() && packs) data["sequence_length"] = most;
    const json* multiple = args_.find("pad_to_multiple_of");
    if (multiple && multiple->is_number_integer()) {
      give_lengths();
      say("pad_to_multiple_of", "/data/padding", *multiple, {});
    } else if (multiple && !multiple->is_null() && *multiple != "auto") {
      args_.fail_found("pad_to_multiple_of", "wrong-type", "expected a number of tokens, \"auto\" or null");
    }
    const json padding = data.value("padding", json());
    if (padding == "max" || data.value("padding_side", json()) == "left")
      args_.fail("", "inconsistent",
                 "found data.padding or padding_side; " + std::string(trainer_.name) +
                     " pads on the right, to the longest sample or a multiple (pad_to_multiple_of): leave it out");
  }

  /// Samples that are full, as a list of lengths.
  void give_lengths() {
    json& data = job_["data"];
    const json size = data.value("micro_batch_size", json(8)), length = data.value("sequence_length", json());
    if (data.contains("lengths") || data.contains("packed") || !length.is_number_integer() ||
        !size.is_number_integer() || size < 1 || size > 1 << 20)
      return;
    data["lengths"]["batches"] = json::array();
    data["lengths"]["batches"].push_back(std::vector<json>(size.get<std::size_t>(), length));
  }

  void spell_packing() {
    json& data = job_["data"];
    if (!data.is_object()) return;
    const bool packs = args_.boolean("packing", false);
    const std::string strategy = args_.text("packing_strategy", "bfd");
    if (strategy != "bfd" && strategy != "wrapped")
      return args_.fail_found("packing_strategy", strategy == "bfd_split" ? "not-modelled" : "unknown-choice",
                              "expected bfd or wrapped");
    if (args_.has("packing") && !packs && data.contains("packed"))
      return args_.fail_found("packing", "inconsistent", "the job's /data/packed packs: leave one of them out");
    if (packs && given_["max_length"].is_null())
      return args_.fail_found("packing", "inconsistent", "its rows are max_length tokens long, which is null");
    if (packs) {
      give_lengths();
      if (!data.contains("packed"))
        data["packed"] = strategy;
      else if (data["packed"].is_string() && data["packed"] != strategy)
        args_.fail_found("packing_strategy", "inconsistent",
                         "the job's /data/packed is " + describe(data["packed"]) + ": leave one of them out");
    }
    if (args_.has("eval_packing") && args_.boolean("eval_packing", packs) != data.contains("packed"))
      args_.fail_found("eval_packing", "not-modelled",
                       "an evaluation that packs otherwise than training is not supported yet");
    const bool is_free = args_.boolean("padding_free", false);
    if (is_free && !data.contains("packed") && !given_["max_length"].is_null())
      args_.fail_found("padding_free", "inconsistent",
                       "without packing max_length is not enforced, so that the trainer wants \"max_length\": null");
    if (data.contains("packed") && data["packed"] != "wrapped") given_["padding_free"] = true;
    if (given_.value("padding_free", false) && !trl().collates_bounds)
      args_.fail(
          "", "not-modelled",
          "found rows without padding with a TRL that gives their bounds to no model (before 1.16), which is not "
          "supported yet; expected runtime.trl 1.16, or padding");
    if (given_.value("padding_free", false) && data.contains("padding"))
      args_.fail("", "not-modelled", "found padding to a multiple of a row without padding; expected one of them");
  }

  /// Labels that are not -100.
  void spell_scored() {
    json& data = job_["data"];
    if (!data.is_object()) return;
    const json scored = data.value("scored", json());
    if (args_.has("completion_only_loss")) {
      const bool is_completion = args_.boolean("completion_only_loss", false);
      if (is_completion && scored.is_null()) data["scored"] = "completion";
      if ((is_completion && scored == "all") || (!is_completion && scored == "completion"))
        args_.fail_found("completion_only_loss", "inconsistent",
                         "the job's /data/scored is " + describe(scored) + ": leave one of them out");
    }
    if (args_.boolean("assistant_only_loss", false) && (scored.is_null() || scored == "all"))
      args_.fail_found("assistant_only_loss", "missing",
                       "how many tokens are the assistant's decides memory; expected data.scored, {\"tokens\": n} or "
                       "{\"fraction\": x}");
  }

  json& job_;
  const Trainer& trainer_;
  json given_;
  Findings findings_;
  ConfigReader args_;
  std::vector<const char*> taken_;
  bool has_checkpointing_options_ = false;
};

}  // namespace

bool changes_no_memory(std::string_view argument) {
  return std::find(std::begin(kHarmless), std::end(kHarmless), argument) != std::end(kHarmless);
}

std::optional<Error> spell_out_loop(json& job) {
  const auto training = job.find("training");
  if (training == job.end() || !training->is_object() || !training->contains("loop")) return std::nullopt;
  json& loop = (*training)["loop"];
  const json name = loop.is_object() ? loop.value("name", json()) : loop;
  const auto trainer =
      std::find_if(std::begin(kTrainers), std::end(kTrainers), [&](const Trainer& t) { return name == t.name; });
  if (trainer == std::end(kTrainers)) return std::nullopt;
  if (loop.is_string()) loop = {{"name", name}};
  if (const json args = loop.value("args", json::object()); !args.is_object())
    return Error{"wrong-type", kArguments,
                 "found " + describe(args) + "; expected an object {...} of the trainer's arguments"};
  return Spelling(job, *trainer).run();
}

}  // namespace oometer
