#include "job/loop.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>
#include <vector>

#include "config/reader.h"

namespace oometer {

using nlohmann::json;

namespace {

constexpr const char* kArguments = "/training/loop/args";

constexpr const char* kTrainers[] = {"transformers.Trainer"};

/// Fields of TrainingArguments (transformers 5.23) that change no memory of the device.
constexpr std::string_view kHarmless[] = {"accelerator_config",
                                          "adam_beta1",
                                          "adam_beta2",
                                          "adam_epsilon",
                                          "data_seed",
                                          "dataloader_drop_last",
                                          "dataloader_in_order",
                                          "dataloader_multiprocessing_context",
                                          "dataloader_num_workers",
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
                                          "torch_compile_backend",
                                          "torch_compile_mode",
                                          "trackio_bucket_id",
                                          "trackio_space_id",
                                          "trackio_static_space_id",
                                          "warmup_ratio",
                                          "warmup_steps",
                                          "weight_decay"};

/// Fields that decide memory and are not modelled: only what is as good as absent is taken.
constexpr const char* kNotModelled[] = {
    "auto_find_batch_size", "batch_eval_metrics",  "bf16_full_eval",      "eval_on_start", "eval_use_gather_object",
    "fp16_full_eval",       "include_for_metrics", "neftune_noise_alpha", "optim_args",    "optim_target_modules",
    "parallelism_config",   "torch_compile",       "use_cache",           "use_cpu"};

/// What an optimizer of `optim` is in the job's own words.
struct Optim {
  std::string_view name;
  const char* ours;
};
constexpr Optim kOptims[] = {
    {"adamw_torch", R"({"name": "adamw", "implementation": "foreach"})"},
    {"adamw_torch_fused", R"({"name": "adamw", "implementation": "fused"})"},
    {"adamw_8bit", R"({"name": "adamw", "implementation": "bnb-8bit"})"},
    {"adamw_bnb_8bit", R"({"name": "adamw", "implementation": "bnb-8bit"})"},
    {"paged_adamw_8bit", R"({"name": "adamw", "implementation": "bnb-8bit", "paged": true})"},
    {"paged_adamw_32bit", R"({"name": "adamw", "implementation": "bnb-32bit", "paged": true})"},
    {"paged_adamw", R"({"name": "adamw", "implementation": "bnb-32bit", "paged": true})"},
    {"sgd", R"({"name": "sgd", "implementation": "foreach"})"}};

/// The job while it is rewritten.
class Spelling {
 public:
  explicit Spelling(json& job)
      : job_(job),
        given_(job["training"]["loop"].value("args", json::object())),
        args_(&given_, kArguments, Mode::strict, findings_) {}

  std::optional<Error> run() {
    const auto set = [this](const char* argument, const char* pointer, json fallback) {
      say(argument, pointer, args_.has(argument) ? *args_.find(argument) : json(), std::move(fallback));
    };
    const bool has_lengths = has("/data/lengths/batches") && !has("/data/packed");
    set("per_device_train_batch_size", "/data/micro_batch_size", has_lengths ? json() : json(8));
    set("gradient_accumulation_steps", "/training/gradient_accumulation_steps", {});
    set("max_grad_norm", "/training/max_grad_norm", 1.0);
    spell_precision();
    spell_checkpointing();
    spell_optimizer();
    spell_liger();
    for (const char* key : kNotModelled) refuse(key);
    for (const char* key : {"deepspeed", "fsdp", "fsdp_config"})
      if (const json* value = args_.find(key); value && !is_absent(*value))
        args_.fail_found(key, "not-modelled", "a trainer with it is not supported yet: leave it out");
    for (const char* key :
         {"ddp_broadcast_buffers", "ddp_bucket_cap_mb", "ddp_find_unused_parameters", "ddp_static_graph"})
      refuse(key);
    if (const json* sampling = args_.find("train_sampling_strategy");
        sampling && *sampling != "random" && !sampling->is_null())
      args_.fail_found("train_sampling_strategy", "not-modelled", "expected \"random\": others are not supported yet");
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
      args_.fail_found(key, "not-modelled", "not supported yet: leave it out");
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
    const bool bf16 = args_.boolean("bf16", false), fp16 = args_.boolean("fp16", false);
    if (bf16 && fp16)
      return args_.fail_found("fp16", "inconsistent", "bf16 is true too, and Trainer takes one of them: leave one out");
    const json autocast = bf16 ? json("bf16") : fp16 ? json("fp16") : json();
    const bool says_none = (args_.has("bf16") || args_.has("fp16")) && autocast.is_null();
    json& training = job_["training"];
    json precision = training.value("precision", json());
    if (precision == "amp-bf16" || precision == "amp-fp16")
      precision = {{"weights", "fp32"}, {"autocast", precision == "amp-bf16" ? "bf16" : "fp16"}};
    if (precision.is_object() && precision.contains("autocast")) {
      const json& own = precision["autocast"];
      if ((!autocast.is_null() && own != autocast) || (says_none && !own.is_null()))
        args_.fail_found(args_.has("bf16") ? "bf16" : "fp16", "inconsistent",
                         "training.precision's autocast is " + describe(own) + ": leave one of them out");
      return;
    }
    if (autocast.is_null()) return;
    if (precision.is_object()) {
      training["precision"]["autocast"] = autocast;
    } else {
      training["precision"] = {{"weights", precision.is_null() ? json("bf16") : precision}, {"autocast", autocast}};
    }
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
    if (args_.has(key)) {
      ConfigReader options = args_.object(options_key);
      const bool reentrant = options.boolean("use_reentrant", false);
      options.ignore({"preserve_rng_state", "determinism_check", "debug"});
      options.finish();
      value = !args_.boolean(key, false) ? "none" : reentrant ? "reentrant" : "non-reentrant";
    }
    args_.ignore({options_key});
    say(key, "/training/activation_checkpointing", std::move(value), {});
  }

  void spell_optimizer() {
    taken_.push_back("optim");
    if (!args_.has("optim")) return;
    const std::string name = args_.text("optim", "");
    const auto found =
        std::find_if(std::begin(kOptims), std::end(kOptims), [&](const Optim& o) { return o.name == name; });
    if (found == std::end(kOptims)) {
      std::string known;
      for (const Optim& optim : kOptims) known += (known.empty() ? "" : ", ") + std::string(optim.name);
      return args_.fail_found("optim", "not-modelled", "others are not supported yet; expected " + known);
    }
    json& own = job_["training"]["optimizer"];
    if (own.is_null()) own = json::object();
    if (!own.is_object()) return;
    const json spelled = json::parse(found->ours);
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
    taken_.push_back("liger_kernel_config");
    say("use_liger_kernel", "/training/liger", std::move(value), {});
  }

  json& job_;
  json given_;
  Findings findings_;
  ConfigReader args_;
  std::vector<const char*> taken_;
};

}  // namespace

std::optional<Error> spell_out_loop(json& job) {
  const auto training = job.find("training");
  if (training == job.end() || !training->is_object() || !training->contains("loop")) return std::nullopt;
  json& loop = (*training)["loop"];
  const json name = loop.is_object() ? loop.value("name", json()) : loop;
  if (std::find(std::begin(kTrainers), std::end(kTrainers), name) == std::end(kTrainers)) return std::nullopt;
  if (loop.is_string()) loop = {{"name", name}};
  if (const json args = loop.value("args", json::object()); !args.is_object())
    return Error{"wrong-type", kArguments,
                 "found " + describe(args) + "; expected an object {...} of the trainer's arguments"};
  return Spelling(job).run();
}

}  // namespace oometer
