#include "importers/trl/trl.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "config/reader.h"
#include "importers/transformers/training_arguments.h"

namespace oometer::importers {

using nlohmann::json;

namespace {

constexpr const char* kModelSource = "trainer/model_config.py: ModelConfig";
constexpr const char* kConfigSource = "trainer/sft_config.py: SFTConfig";
constexpr const char* kTrlArgs = "/training/loop/args/";

constexpr Key kTrlKeys[] = {
    {"model_name_or_path", "", kModelSource, ""},
    {"dtype", "\"float32\"", kModelSource, ""},
    {"torch_dtype", "", kModelSource, ""},  // its name until 0.23
    {"attn_implementation", "\"sdpa\"", kModelSource, "/training/attention"},
    {"use_peft", "false", kModelSource, ""},
    {"lora_r", "16", kModelSource, "/training/lora/rank"},
    {"lora_alpha", "32", kModelSource, "/training/lora/alpha"},
    {"lora_dropout", "0.05", kModelSource, "/training/lora/dropout"},
    {"lora_target_modules", "", kModelSource, ""},
    {"lora_target_parameters", "", kModelSource, ""},
    {"lora_modules_to_save", "", kModelSource, ""},
    {"use_rslora", "false", kModelSource, ""},
    {"use_dora", "false", kModelSource, ""},
    {"load_in_8bit", "false", kModelSource, ""},
    {"load_in_4bit", "false", kModelSource, ""},
    {"bnb_4bit_quant_type", "\"nf4\"", kModelSource, "/training/quantization/bnb_4bit_quant_type"},
    {"use_bnb_nested_quant", "false", kModelSource, "/training/quantization/bnb_4bit_use_double_quant"},
    {"bnb_4bit_quant_storage", "", kModelSource, ""},
    {"bnb_4bit_compute_dtype", "", "utils/quantization_config.py: BitsAndBytesConfig", ""},  // of a script
    {"prepare_model_for_kbit_training", "", "utils/other.py of peft", ""},                   // of a script
    {"bf16", "true", "trainer/base_config.py: _BaseConfig.__post_init__", ""},               // unless fp16
    {"gradient_checkpointing", "true", "trainer/base_config.py: _BaseConfig", ""},
    {"max_length", "1024", kConfigSource, ""},
    {"packing", "false", kConfigSource, ""},
    {"packing_strategy", "\"bfd\"", kConfigSource, ""},
    {"eval_packing", "", kConfigSource, ""},
    {"padding_free", "false", kConfigSource, ""},
    {"activation_offloading", "false", kConfigSource, ""},
    {"pad_to_multiple_of", "\"auto\"", kConfigSource, ""},
    {"completion_only_loss", "", kConfigSource, ""},
    {"assistant_only_loss", "false", kConfigSource, ""},
    {"loss_type", "", kConfigSource, ""},
    {"model_init_kwargs", "", kConfigSource, ""},
    {"router_aux_loss_coef", "", kConfigSource, ""},
    {"chat_template_path", "", kConfigSource, ""},
    {"disable_dropout", "true", "trainer/dpo_config.py: DPOConfig", ""},
    {"precompute_ref_log_probs", "false", "trainer/dpo_config.py: DPOConfig", ""},
    {"center_rewards_coefficient", "", "trainer/reward_config.py: RewardConfig", ""},
    {"lora_task_type", "\"CAUSAL_LM\"", kModelSource, ""},
    {"f_divergence_type", "\"reverse_kl\"", "trainer/dpo_config.py: DPOConfig", ""},
};

constexpr Gap kTrlGaps[] = {
    {"ld_alpha", "", Effect::more, "log-probabilities of each token twice"},
    {"use_weighting", "", Effect::more, "log-probabilities of all classes for the weights of samples"},
    {"generate_during_eval", "", Effect::more, "answers are generated before an evaluation"},
    {"is_encoder_decoder", "", Effect::either, "a model of encoder and decoder"},
    {"sync_ref_model", "", Effect::more, "a copy of the policy while the reference follows it"},
};

constexpr std::string_view kTrlHarmless =
    "model_revision trust_remote_code dataset_name dataset_config dataset_train_split "
    "dataset_test_split "
    "dataset_streaming ignore_bias_buffers gradient_checkpointing_use_reentrant datasets streaming test_split_size "
    "dataset_text_field dataset_kwargs dataset_num_proc eos_token pad_token shuffle_dataset truncation_mode beta "
    "discopop_tau f_alpha_divergence_coef label_smoothing loss_weights precompute_ref_batch_size "
    "ref_model_mixup_alpha ref_model_sync_steps env config max_prompt_length dataset_batch_size model_code_revision "
    "num_of_sequences desirable_weight undesirable_weight max_completion_length padding_value";

/// A command, or a script of examples/scripts.
struct Program {
  std::string_view name;
  const char* trainer;
};
constexpr Program kPrograms[] = {{"sft", "trl.SFTTrainer"},
                                 {"dpo", "trl.DPOTrainer"},
                                 {"kto", "trl.KTOTrainer"},
                                 {"reward", "trl.RewardTrainer"},
                                 {"reward_modeling", "trl.RewardTrainer"},
                                 {"orpo", "trl.experimental.orpo.ORPOTrainer"}};

constexpr Renamed kTrlRenamed[] = {{"max_seq_length", "max_length", "0.20"}, {"use_liger", "use_liger_kernel", "0.20"}};

constexpr Table kTrl = {"trl 1.16", kTrlKeys, kTrlGaps, kTrlHarmless, nullptr, kTrlRenamed};

void take_trl_lora(Context& context, Keys& keys) {
  take_adapters(context, keys);
  const char* const key = keys.truth("load_in_4bit") ? "load_in_4bit" : "load_in_8bit";
  if (!keys.truth("use_peft") || !keys.truth(key)) return;
  // SFTTrainer makes the adapters bf16 (sft_trainer.py: __init__).
  context.ledger.put("/training/lora/autocast_adapter_dtype", false);
  context.ledger.taken.push_back({"", key, "/training/lora/autocast_adapter_dtype", false, true,
                                  "trl 1.16, trainer/sft_trainer.py: SFTTrainer.__init__"});
  const char* const dtype = keys.has("torch_dtype") ? "torch_dtype" : "dtype";
  std::string weights = dtype_of(keys.text(dtype));
  if (weights.empty()) weights = context.published_dtype(keys);
  if (weights != "bf16")
    keys.leave_out(dtype, Effect::less,
                   "adapters are bf16, as TRL makes them on quantized weights; here they have the weights' type");
}

}  // namespace

bool is_trl(const json& tree) {
  for (const char* key : {"dataset_name", "dataset_train_split", "use_peft", "max_length", "completion_only_loss",
                          "lora_target_modules", "packing_strategy"})
    if (tree.contains(key)) return tree.contains("model_name_or_path") || tree.contains("dataset_name");
  return false;
}

std::string trl_program(const json& tree) {
  for (const char* key : {"beta", "precompute_ref_log_probs", "f_divergence_type", "ref_model_sync_steps", "ld_alpha"})
    if (tree.contains(key)) return "dpo";
  if (tree.contains("desirable_weight") || tree.contains("undesirable_weight")) return "kto";
  if (tree.contains("center_rewards_coefficient")) return "reward";
  return "sft";
}

void read_trl(Context& context, Keys& keys, const std::string& program) {
  keys.know(training_arguments());
  keys.know(kTrl);
  context.ledger.trainer = kTrl.project;
  const Program* const found = std::find_if(std::begin(kPrograms), std::end(kPrograms),
                                            [&](const Program& known) { return program == known.name; });
  if (found == std::end(kPrograms))
    keys.refuse("", "`trl " + program + "` is not supported yet; `trl sft`, `trl dpo`, `trl kto` and `trl reward` are");
  else
    context.ledger.put("/training/loop/name", found->trainer);
  context.take_model(keys, "model_name_or_path");
  const Autocast autocast = autocast_of(context, keys, true);
  const char* const dtype = keys.has("torch_dtype") ? "torch_dtype" : "dtype";
  std::string weights = dtype_of(keys.text(dtype));
  if (weights.empty()) weights = context.published_dtype(keys);
  context.take_precision(keys, dtype, weights, autocast.key, autocast.dtype);
  keys.take("attn_implementation");
  take_checkpointing(keys, false);
  take_training_arguments(context, keys);
  take_trl_lora(context, keys);
  if (found != std::end(kPrograms) && program.starts_with("reward") && keys.truth("use_peft") &&
      keys.text("lora_task_type") != "SEQ_CLS")
    keys.leave_out("lora_task_type", Effect::less,
                   "the head that scores is not trained with it, and here it is, as with SEQ_CLS");
  keys.ignore("lora_task_type");
  const json most = keys.value("max_length");
  keys.take("max_length", std::string(kTrlArgs) + "max_length", most);
  if (!most.is_number_integer())
    context.ledger.missing.push_back({"value", "max_length", keys.file(), "max_length",
                                      "samples are not cut: say how long the longest is (data.sequence_length)"});
  for (const char* key : {"packing", "packing_strategy", "eval_packing", "padding_free", "pad_to_multiple_of",
                          "completion_only_loss", "activation_offloading", "assistant_only_loss", "loss_type",
                          "model_init_kwargs", "router_aux_loss_coef", "chat_template_path", "disable_dropout",
                          "precompute_ref_log_probs", "f_divergence_type", "center_rewards_coefficient"})
    keys.take_given(key, std::string(kTrlArgs) + key);
}

}  // namespace oometer::importers
