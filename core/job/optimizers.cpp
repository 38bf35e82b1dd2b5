#include "job/optimizers.h"

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "config/reader.h"
#include "job/names.h"
#include "train/config.h"

namespace oometer {

using nlohmann::json;

namespace {

using Implementation = OptimizerImplementation;

/// Which implementations a class has: torch's, or bitsandbytes' of 8 and of 32 bits.
enum Has : std::uint8_t { kHasForLoop = 1, kHasForeach = 2, kHasFused = 4, kHasBits = 8 };

/// A class: what its constructor takes. Lists are names with blanks between.
struct OptimizerClass {
  OptimizerName name;
  const char* path;
  std::uint8_t has;        ///< Has; foreach is the default of those that have it
  const char* decides;     ///< arguments that decide memory
  const char* harmless;    ///< those that do not
  const char* not_yet;     ///< those that would, and are not modelled: as good as absent they are taken
  const char* usual = "";  ///< arguments that decide memory and are not false or 0 by default, as JSON
};

constexpr const char* kSwitches = "maximize capturable differentiable";

constexpr const char* kOfBits = "lr betas eps weight_decay alpha t_alpha t_beta3";
constexpr const char* kOfScheduleFree =
    "lr betas eps momentum weight_decay warmup_steps r weight_lr_power silent_sgd_phase";
constexpr const char* kNotOfBits = "min_8bit_size max_unorm skip_zeros args";

constexpr OptimizerClass kClasses[] = {
    {OptimizerName::adamw, "torch.optim.AdamW", kHasForLoop | kHasForeach | kHasFused, "amsgrad",
     "lr betas eps weight_decay decoupled_weight_decay", kSwitches},
    {OptimizerName::adam, "torch.optim.Adam", kHasForLoop | kHasForeach | kHasFused,
     "amsgrad weight_decay decoupled_weight_decay", "lr betas eps", kSwitches},
    {OptimizerName::sgd, "torch.optim.SGD", kHasForLoop | kHasForeach | kHasFused, "weight_decay nesterov",
     "lr dampening", kSwitches},
    {OptimizerName::adadelta, "torch.optim.Adadelta", kHasForLoop | kHasForeach, "weight_decay", "lr rho eps",
     kSwitches},
    {OptimizerName::adafactor, "torch.optim.Adafactor", kHasForLoop | kHasForeach, "",
     "lr beta2_decay eps d weight_decay", kSwitches},
    {OptimizerName::adagrad, "torch.optim.Adagrad", kHasForLoop | kHasForeach | kHasFused, "weight_decay",
     "lr lr_decay initial_accumulator_value eps", kSwitches},
    {OptimizerName::adamax, "torch.optim.Adamax", kHasForLoop | kHasForeach, "weight_decay", "lr betas eps", kSwitches},
    {OptimizerName::asgd, "torch.optim.ASGD", kHasForLoop | kHasForeach, "weight_decay", "lr lambd alpha t0",
     kSwitches},
    {OptimizerName::muon, "torch.optim.Muon", kHasForLoop, "nesterov ns_steps",
     "lr weight_decay momentum ns_coefficients eps adjust_lr_fn", "", R"({"nesterov": true})"},
    {OptimizerName::nadam, "torch.optim.NAdam", kHasForLoop | kHasForeach, "weight_decay decoupled_weight_decay",
     "lr betas eps momentum_decay", kSwitches},
    {OptimizerName::radam, "torch.optim.RAdam", kHasForeach, "weight_decay decoupled_weight_decay", "lr betas eps",
     kSwitches},
    {OptimizerName::hf_adafactor, "transformers.optimization.Adafactor", kHasForLoop,
     "beta1 scale_parameter weight_decay", "lr eps clip_threshold decay_rate relative_step warmup_init", ""},
    {OptimizerName::lion, "bitsandbytes.optim.Lion", kHasBits, "", kOfBits, kNotOfBits},
    {OptimizerName::ademamix, "bitsandbytes.optim.AdEMAMix", kHasBits, "", kOfBits, kNotOfBits},
    {OptimizerName::schedule_free_adamw, "schedulefree.AdamWScheduleFree", kHasForeach, "", kOfScheduleFree, ""},
    {OptimizerName::schedule_free_radam, "schedulefree.RAdamScheduleFree", kHasForeach, "", kOfScheduleFree, ""},
    {OptimizerName::schedule_free_sgd, "schedulefree.SGDScheduleFree", kHasForeach, "", kOfScheduleFree, ""},
    {OptimizerName::stable_adamw, "optimi.StableAdamW", kHasForLoop, "kahan_sum",
     "lr betas weight_decay eps decouple_lr max_lr", "foreach triton gradient_release"},
    {OptimizerName::apollo_adamw, "apollo_torch.APOLLOAdamW", kHasForLoop,
     "rank proj proj_type scale_type target_modules", "lr betas eps weight_decay correct_bias no_deprecation_warning",
     "scale_front disable_nl"},
    {OptimizerName::galore_adamw, "galore_torch.GaLoreAdamW", kHasForLoop, "rank proj_type target_modules weight_decay",
     "lr betas eps correct_bias no_deprecation_warning", ""},
    {OptimizerName::galore_adafactor, "galore_torch.GaLoreAdafactor", kHasForLoop,
     "rank proj_type target_modules beta1 scale_parameter weight_decay",
     "lr eps clip_threshold decay_rate relative_step warmup_init", ""},
    {OptimizerName::lomo, "lomo_optim.Lomo", kHasForLoop, "", "lr weight_decay", "clip_grad_norm clip_grad_value"},
    {OptimizerName::adalomo, "lomo_optim.AdaLomo", kHasForLoop, "",
     "lr weight_decay eps clip_threshold decay_rate loss_scale", "clip_grad_norm clip_grad_value"},
    {OptimizerName::grokadamw, "grokadamw.GrokAdamW", kHasForLoop, "",
     "lr betas eps weight_decay alpha_init lamb gamma grokking_signal_fns grokking_signal_decay_rate", ""},
    {OptimizerName::torchao_adamw_8bit, "torchao.optim.AdamW8bit", kHasForLoop, "block_size bf16_stochastic_round",
     "lr betas eps weight_decay", "amsgrad"},
    {OptimizerName::torchao_adamw_4bit, "torchao.optim.AdamW4bit", kHasForLoop, "block_size bf16_stochastic_round",
     "lr betas eps weight_decay", "amsgrad", R"({"block_size": 128})"},
    {OptimizerName::torchao_adamw_fp8, "torchao.optim.AdamWFp8", kHasForLoop, "block_size bf16_stochastic_round",
     "lr betas eps weight_decay", "amsgrad"},
    {OptimizerName::flash_adamw, "flashoptim.FlashAdamW", kHasForLoop, "master_weight_bits quantize",
     "lr betas eps weight_decay decouple_lr compress_state_dict fused", "check_numerics"},
    {OptimizerName::flash_lion, "flashoptim.FlashLion", kHasForLoop, "master_weight_bits quantize",
     "lr betas weight_decay decouple_lr compress_state_dict fused", "check_numerics"},
    {OptimizerName::te_fused_adam, "transformer_engine.pytorch.optimizers.FusedAdam", kHasForLoop,
     "master_weights store_param_remainders exp_avg_dtype",
     "lr betas eps weight_decay bias_correction adam_w_mode master_weight_dtype exp_avg_sq_dtype set_grad_none",
     "amsgrad capturable use_decoupled_grad"},
    {OptimizerName::optimi_adamw, "optimi.AdamW", kHasForLoop | kHasForeach, "kahan_sum",
     "lr betas weight_decay eps decouple_lr max_lr", "triton gradient_release"},
    {OptimizerName::optimi_lion, "optimi.Lion", kHasForLoop | kHasForeach, "kahan_sum",
     "lr betas weight_decay decouple_lr max_lr", "triton gradient_release"},
    {OptimizerName::lion_pytorch, "lion_pytorch.Lion", kHasForLoop, "", "lr betas weight_decay decoupled_weight_decay",
     "use_triton"},
    {OptimizerName::came, "came_pytorch.CAME", kHasForLoop, "weight_decay", "lr eps clip_threshold betas", ""},
    {OptimizerName::lamb, "bitsandbytes.optim.LAMB", kHasBits, "",
     "lr betas eps weight_decay bias_correction adam_w_mode max_unorm", "amsgrad min_8bit_size args"},
    {OptimizerName::galore_adamw_8bit, "galore_torch.GaLoreAdamW8bit", kHasBits,
     "rank proj_type target_modules weight_decay", "lr betas eps", "amsgrad min_8bit_size args is_paged"},
    {OptimizerName::prodigy, "prodigyopt.Prodigy", kHasForLoop, "slice_p",
     "lr betas beta3 eps weight_decay decouple use_bias_correction safeguard_warmup d0 d_coef growth_rate",
     "fsdp_in_use"},
    {OptimizerName::adopt, "axolotl.utils.optimizers.adopt.ADOPT", kHasForLoop | kHasForeach,
     "weight_decay decoupled_weight_decay", "lr betas eps clip_lambda", "maximize capturable differentiable fused"},
    {OptimizerName::adam_mini, "adam_mini.Adam_mini", kHasForLoop, "dim n_heads",
     "lr betas eps weight_decay n_kv_heads model_sharding verbose", ""},
    {OptimizerName::deepspeed_lion, "deepspeed.ops.lion.FusedLion", kHasForLoop, "",
     "lr betas weight_decay set_grad_none", ""},
    {OptimizerName::deepspeed_lamb, "deepspeed.ops.lamb.FusedLamb", kHasForLoop, "",
     "lr bias_correction betas eps eps_inside_sqrt weight_decay max_coeff min_coeff amsgrad", "max_grad_norm"},
    {OptimizerName::rprop, "torch.optim.Rprop", kHasForeach, "", "lr etas step_sizes", kSwitches},
    {OptimizerName::rmsprop, "torch.optim.RMSprop", kHasForLoop | kHasForeach | kHasBits, "weight_decay centered",
     "lr alpha eps", kSwitches},
};

/// Other paths of the same classes, and of classes that take the same memory.
struct OptimizerAlias {
  std::string_view path;
  const char* ours;
};
constexpr OptimizerAlias kAliases[] = {
    {"transformer_engine.pytorch.optimizers.fused_adam.FusedAdam", "transformer_engine.pytorch.optimizers.FusedAdam"},
    {"torchao.optim.Adam8bit", "torchao.optim.AdamW8bit"},
    {"torchao.optim.Adam4bit", "torchao.optim.AdamW4bit"},
    {"torchao.optim.AdamFp8", "torchao.optim.AdamWFp8"},
    {"torchao.optim.adam.AdamWFp8", "torchao.optim.AdamWFp8"},
    {"torchao.prototype.low_bit_optim.AdamW8bit", "torchao.optim.AdamW8bit"},
    {"torchao.prototype.low_bit_optim.AdamW4bit", "torchao.optim.AdamW4bit"},
    {"torchao.prototype.low_bit_optim.AdamWFp8", "torchao.optim.AdamWFp8"},
    {"flashoptim.FlashAdam", "flashoptim.FlashAdamW"},
    {"optimi.Adam", "optimi.AdamW"},
};

/// transformers' names (training_args.py, OptimizerNames).
struct Optim {
  std::string_view name;
  const char* ours;           ///< in the words of `training.optimizer`
  const char* numbers = "";   ///< what it reads of `optim_args` and decides memory
  const char* switches = "";  ///< the same, of those that are true or false
  const char* texts = "";     ///< the same, of those that are names
};
constexpr const char* kOfProjection = "proj proj_type scale_type";
constexpr Optim kOptims[] = {
    {"adamw_torch", R"({"name": "adamw", "implementation": "foreach"})"},
    {"adamw_torch_fused", R"({"name": "adamw", "implementation": "fused"})"},
    {"adamw_8bit", R"({"name": "adamw", "implementation": "bnb-8bit"})"},
    {"adamw_bnb_8bit", R"({"name": "adamw", "implementation": "bnb-8bit"})"},
    {"paged_adamw_8bit", R"({"name": "adamw", "implementation": "bnb-8bit", "paged": true})"},
    {"paged_adamw_32bit", R"({"name": "adamw", "implementation": "bnb-32bit", "paged": true})"},
    {"paged_adamw", R"({"name": "adamw", "implementation": "bnb-32bit", "paged": true})"},
    {"ademamix", R"({"name": "bitsandbytes.optim.AdEMAMix", "implementation": "bnb-32bit", "param_groups": 2})"},
    {"ademamix_8bit", R"({"name": "bitsandbytes.optim.AdEMAMix", "implementation": "bnb-8bit", "param_groups": 2})"},
    {"paged_ademamix_32bit",
     R"({"name": "bitsandbytes.optim.AdEMAMix", "implementation": "bnb-32bit", "paged": true, "param_groups": 2})"},
    {"paged_ademamix_8bit",
     R"({"name": "bitsandbytes.optim.AdEMAMix", "implementation": "bnb-8bit", "paged": true, "param_groups": 2})"},
    {"lion_32bit", R"({"name": "bitsandbytes.optim.Lion", "implementation": "bnb-32bit", "param_groups": 2})"},
    {"lion_8bit", R"({"name": "bitsandbytes.optim.Lion", "implementation": "bnb-8bit", "param_groups": 2})"},
    {"paged_lion_32bit",
     R"({"name": "bitsandbytes.optim.Lion", "implementation": "bnb-32bit", "paged": true, "param_groups": 2})"},
    {"paged_lion_8bit",
     R"({"name": "bitsandbytes.optim.Lion", "implementation": "bnb-8bit", "paged": true, "param_groups": 2})"},
    {"rmsprop_bnb", R"({"name": "torch.optim.RMSprop", "implementation": "bnb-32bit", "param_groups": 2})"},
    {"rmsprop_bnb_8bit", R"({"name": "torch.optim.RMSprop", "implementation": "bnb-8bit", "param_groups": 2})"},
    {"rmsprop_bnb_32bit", R"({"name": "torch.optim.RMSprop", "implementation": "bnb-32bit", "param_groups": 2})"},
    {"schedule_free_adamw", R"({"name": "schedulefree.AdamWScheduleFree", "param_groups": 2})"},
    {"schedule_free_radam", R"({"name": "schedulefree.RAdamScheduleFree", "param_groups": 2})"},
    {"schedule_free_sgd", R"({"name": "schedulefree.SGDScheduleFree", "param_groups": 2})"},
    {"stable_adamw", R"({"name": "optimi.StableAdamW", "param_groups": 2})"},
    {"adamw_torch_8bit", R"({"name": "torchao.optim.AdamW8bit", "param_groups": 2})", "block_size",
     "bf16_stochastic_round"},
    {"adamw_torch_4bit", R"({"name": "torchao.optim.AdamW4bit", "param_groups": 2, "args": {"block_size": 256}})",
     "block_size", "bf16_stochastic_round"},
    {"galore_adamw_8bit", R"({"name": "galore_torch.GaLoreAdamW8bit", "implementation": "bnb-8bit"})", "rank", "",
     "proj_type"},
    {"apollo_adamw", R"({"name": "apollo_torch.APOLLOAdamW"})", "rank", "", kOfProjection},
    {"apollo_adamw_layerwise", R"({"name": "apollo_torch.APOLLOAdamW", "in_backward": true})", "rank", "",
     kOfProjection},
    {"galore_adamw", R"({"name": "galore_torch.GaLoreAdamW"})", "rank", "", "proj_type"},
    {"galore_adamw_layerwise", R"({"name": "galore_torch.GaLoreAdamW", "in_backward": true})", "rank", "", "proj_type"},
    {"galore_adafactor", R"({"name": "galore_torch.GaLoreAdafactor",
                             "args": {"scale_parameter": false, "relative_step": false}})",
     "rank", "", "proj_type"},
    {"lomo", R"({"name": "lomo_optim.Lomo"})"},
    {"adalomo", R"({"name": "lomo_optim.AdaLomo"})"},
    {"grokadamw", R"({"name": "grokadamw.GrokAdamW", "param_groups": 2})"},
    {"adafactor", R"({"name": "transformers.optimization.Adafactor", "param_groups": 2,
                      "args": {"scale_parameter": false, "relative_step": false}})"},
    {"sgd", R"({"name": "sgd", "implementation": "foreach"})", "momentum", "nesterov"},
    {"adagrad", R"({"name": "torch.optim.Adagrad", "param_groups": 2})"},
    {"rmsprop", R"({"name": "torch.optim.RMSprop", "param_groups": 2})", "momentum", "centered"},
};

/// What has a name and is not modelled, and why.
struct Refused {
  std::string_view name;
  const char *code, *why;
};
constexpr const char* kNoFlashSgd =
    "FlashOptim's SGD is not supported yet; expected \"flashoptim.FlashLion\", which has one state, too";
constexpr const char* kNoBitsByPath =
    "by its path it has the embeddings in 8 bits, too, where transformers' \"adamw_8bit\" keeps them in 32 bits, and "
    "that is not supported yet; expected a name of transformers' optim, such as \"adamw_8bit\" or \"paged_lion_8bit\"";
constexpr const char* kEigenvectors =
    "it takes eigenvectors of its preconditioners (cuSOLVER), whose workspace only that library knows, so that it is "
    "not "
    "supported; expected \"torch.optim.Muon\" with a \"rest\" in a plain loop, or \"torch.optim.AdamW\"";
constexpr const char* kMatrices =
    "it is not supported yet; expected \"torch.optim.Muon\" with a \"rest\" in a plain loop";
constexpr Refused kRefused[] = {
    {"soap", "not-modelled", kEigenvectors},
    {"shampoo", "not-modelled", kEigenvectors},
    {"pytorch_optimizer.SOAP", "not-modelled", kEigenvectors},
    {"pytorch_optimizer.Shampoo", "not-modelled", kEigenvectors},
    {"pytorch_optimizer.ScalableShampoo", "not-modelled", kEigenvectors},
    {"distributed_shampoo.DistributedShampoo", "not-modelled", kEigenvectors},
    {"emerging_optimizers.soap.SOAP", "not-modelled", kEigenvectors},
    {"SOAP", "not-modelled", kEigenvectors},
    {"Shampoo", "not-modelled", kEigenvectors},
    // Other tools' names of what there is
    {"lamb", "unknown-value", "expected \"bitsandbytes.optim.LAMB\" or \"deepspeed.ops.lamb.FusedLamb\""},
    {"lion", "unknown-value",
     "expected \"lion_32bit\", \"lion_8bit\", \"lion_pytorch.Lion\" or \"deepspeed.ops.lion.FusedLion\""},
    {"adam_mini", "unknown-value", "expected \"adam_mini.Adam_mini\""},
    {"adopt_adamw", "unknown-value", "expected \"axolotl.utils.optimizers.adopt.ADOPT\""},
    {"ao_adamw_fp8", "unknown-value", "expected \"torchao.optim.AdamWFp8\""},
    {"came_pytorch", "unknown-value", "expected \"came_pytorch.CAME\""},
    {"optimi_adamw", "unknown-value", "expected \"optimi.AdamW\""},
    {"dion", "not-modelled", kMatrices},
    {"sinkgd", "not-modelled", kMatrices},
    {"torch.optim.SparseAdam", "inconsistent",
     "\"SparseAdam does not support dense gradients, please consider Adam instead\": expected \"torch.optim.Adam\""},
    {"torch.optim.LBFGS", "not-modelled", "it calls the model several times a step, which is not supported yet"},
    {"apollo_adamw_mini", "unknown-value",
     "expected \"apollo_adamw\" with optim_args \"rank=1,scale_type=tensor\", which is APOLLO-Mini"},
    {"muon", "not-modelled",
     "Axolotl's Muon compiles its Newton-Schulz steps, which is not supported yet; expected \"torch.optim.Muon\" with "
     "a "
     "\"rest\" in a plain loop"},
    {"ao_adamw_8bit", "unknown-value", "Axolotl calls it \"adamw_torch_8bit\" now"},
    {"ao_adamw_4bit", "unknown-value", "Axolotl calls it \"adamw_torch_4bit\" now"},
    {"q_galore_adamw8bit", "not-modelled", "Q-GaLore is not supported yet; expected \"galore_adamw_8bit\""},
    {"flashoptim.FlashSGD", "not-modelled", kNoFlashSgd},
    {"flashoptim.FlashSGDW", "not-modelled", kNoFlashSgd},
    {"flash_sgd", "not-modelled", kNoFlashSgd},
    {"flash_sgdw", "not-modelled", kNoFlashSgd},
    {"bitsandbytes.optim.AdamW8bit", "not-modelled", kNoBitsByPath},
    {"bitsandbytes.optim.Adam8bit", "not-modelled", kNoBitsByPath},
    {"bitsandbytes.optim.PagedAdamW8bit", "not-modelled", kNoBitsByPath},
    {"bitsandbytes.optim.Lion8bit", "not-modelled", kNoBitsByPath},
    {"galore_adamw_8bit_layerwise", "not-modelled",
     "GaLore's AdamW8bit with an optimizer for each weight is not supported yet; expected \"galore_adamw_8bit\" or "
     "\"galore_adamw_layerwise\""},
    {"galore_adafactor_layerwise", "inconsistent",
     "it fails with Trainer's learning rate: \"Cannot combine manual `lr` and `relative_step=True` options\"; expected "
     "\"galore_adafactor\""},
    {"adamw_anyprecision", "not-modelled",
     "\"Please install https://github.com/pytorch/torchdistx\", which is no longer maintained; expected "
     "\"adamw_torch\""},
    {"adamw_torch_xla", "inconsistent",
     "\"Trainer failed to import syncfree AdamW from torch_xla.\" where there is no TPU; expected \"adamw_torch\""},
    {"adamw_torch_npu_fused", "inconsistent",
     "\"Trainer failed to import FusedAdamW from torch_npu.\" where there is no NPU; expected \"adamw_torch_fused\""},
};

std::vector<std::string_view> words_of(std::string_view list) {
  std::vector<std::string_view> words;
  while (!list.empty()) {
    const std::size_t end = std::min(list.find(' '), list.size());
    if (end > 0) words.push_back(list.substr(0, end));
    list.remove_prefix(std::min(end + 1, list.size()));
  }
  return words;
}

bool has_word(std::string_view list, std::string_view word) {
  const std::vector<std::string_view> words = words_of(list);
  return std::find(words.begin(), words.end(), word) != words.end();
}

bool is_absent(const json& value) { return value.is_null() || value == false; }

const OptimizerClass* class_of(std::string_view name) {
  for (const OptimizerAlias& alias : kAliases)
    if (alias.path == name) name = alias.ours;
  const auto is_it = [&](const OptimizerClass& row) {
    return name == row.path || name == name_of(row.name, kOptimizers);
  };
  const auto found = std::find_if(std::begin(kClasses), std::end(kClasses), is_it);
  return found == std::end(kClasses) ? nullptr : found;
}

/// {"name": ..., "args": ...} where it stands.
class OptimizerSpelling {
 public:
  OptimizerSpelling(json& own, std::string pointer) : own_(own), pointer_(std::move(pointer)) {}

  std::optional<Error> spell_out() {
    if (own_.is_string()) own_ = {{"name", own_}};
    if (!own_.is_object() || (own_.contains("name") && !own_["name"].is_string())) return std::nullopt;
    const std::string name = own_.value("name", "adamw");
    const OptimizerClass* row = class_of(name);
    if (!row) {
      if (std::optional<Error> error = spell_out_optim(name)) return error;
      row = class_of(own_.value("name", ""));
    }
    const bool is_path = name.find('.') != std::string::npos || own_["name"] == row->path;
    own_["name"] = name_of(row->name, kOptimizers);
    if (std::optional<Error> error = spell_out_args(*row, is_path)) return error;
    if (is_path && !own_.contains("param_groups")) own_["param_groups"] = 1;
    if (own_.contains("rest")) return OptimizerSpelling(own_["rest"], pointer_ + "/rest").spell_out();
    return std::nullopt;
  }

 private:
  Error error(const std::string& key, const char* code, const std::string& message) const {
    return {code, pointer_ + "/" + key, message};
  }

  std::optional<Error> spell_out_optim(const std::string& name) {
    Result<json> spelled = optimizer_of_optim(name, "");
    if (!spelled) {
      Error found = spelled.error();
      found.pointer = pointer_ + "/name";
      return found;
    }
    own_.erase("name");
    for (const auto& [key, value] : own_.items()) (*spelled)[key] = value;
    own_ = std::move(*spelled);
    return std::nullopt;
  }

  std::optional<Error> spell_out_args(const OptimizerClass& row, bool is_path) {
    json args = own_.value("args", json::object());
    if (!args.is_object())
      return error("args", "wrong-type",
                   "found " + describe(args) + "; expected an object {...} of the class's arguments");
    if (std::optional<Error> wrong = spell_out_implementation(row, args, is_path)) return wrong;
    if (row.name == OptimizerName::te_fused_adam)
      if (std::optional<Error> wrong = spell_out_moments(args)) return wrong;
    if (const auto bits = args.find("master_weight_bits"); bits != args.end()) {
      if (bits->is_null()) *bits = 0;
      if (*bits != 0 && *bits != 24 && *bits != 32)
        return error("args/master_weight_bits", "out-of-range",
                     "found " + describe(*bits) + "; expected 24, 32 or null");
    }
    if (has_word(row.harmless, "fused") && args.contains("fused") && args["fused"] == false)
      return error("args/fused", "not-modelled", "found false, which is not supported yet: leave it out");
    if (row.name == OptimizerName::prodigy)
      if (const auto betas = args.find("betas");
          betas != args.end() && betas->is_array() && !betas->empty() && betas->front() == 0)
        return error("args/betas", "not-modelled",
                     "found " + describe(*betas) + ": Prodigy without a first moment is not supported yet");
    if (row.name == OptimizerName::adopt && args.contains("decouple")) {
      args["decoupled_weight_decay"] = args["decouple"];
      args.erase("decouple");
    }
    Findings findings;
    ConfigReader reader(&args, pointer_ + "/args", Mode::strict, findings);
    for (const char* list : {row.decides, row.harmless})
      for (const std::string_view key : words_of(list)) reader.ignore({key});
    if (has_momentum(row)) reader.ignore({"momentum"});
    for (const std::string_view key : words_of(row.not_yet)) {
      reader.ignore({key});
      if (args.contains(key) && !is_absent(args[std::string(key)]))
        reader.fail_found(std::string(key).c_str(), "not-modelled", "it is not supported yet: leave it out");
    }
    reader.finish();
    if (findings.error) return findings.error;
    if (has_momentum(row) && args.contains("momentum")) own_["momentum"] = args["momentum"];
    json kept = *row.usual == '\0' ? json::object() : json::parse(row.usual);
    for (const std::string_view word : words_of(row.decides))
      if (const std::string key(word); args.contains(key)) kept[key] = args[key];
    // Adafactor's beta1 is a number or None: what decides is whether there is one.
    if (kept.contains("kahan_sum") && kept["kahan_sum"].is_null()) kept.erase("kahan_sum");
    if (kept.contains("beta1") && !kept["beta1"].is_boolean()) kept["beta1"] = !kept["beta1"].is_null();
    own_.erase("args");
    if (!kept.empty()) own_["args"] = std::move(kept);
    return std::nullopt;
  }

  /// Transformer Engine's types of the moments: "torch.float32" is "float32".
  std::optional<Error> spell_out_moments(json& args) const {
    for (const char* key : {"exp_avg_dtype", "exp_avg_sq_dtype", "master_weight_dtype"}) {
      const auto found = args.find(key);
      if (found == args.end() || !found->is_string()) continue;
      std::string& text = found->get_ref<std::string&>();
      if (text.starts_with("torch.")) text.erase(0, 6);
      const bool is_master = std::string_view(key) == "master_weight_dtype";
      if (text != "float32" && (is_master || text != "bfloat16"))
        return error(std::string("args/") + key, "not-modelled",
                     "found " + quote(text) + ", which is not supported yet; expected float32" +
                         (is_master ? "" : " or bfloat16"));
    }
    if (args.value("exp_avg_dtype", json("float32")) != args.value("exp_avg_sq_dtype", json("float32")))
      return error("args/exp_avg_sq_dtype", "not-modelled",
                   "moments of two types are not supported yet; expected exp_avg_dtype's");
    return std::nullopt;
  }

  static bool has_momentum(const OptimizerClass& row) {
    return row.name == OptimizerName::sgd || row.name == OptimizerName::rmsprop;
  }

  /// foreach=None and fused=None: foreach. One of them given: the other is off.
  std::optional<Error> spell_out_implementation(const OptimizerClass& row, json& args, bool is_path) {
    const auto take = [&args](const char* key) {
      json value = args.value(key, json());
      args.erase(key);
      return value;
    };
    const bool has_foreach = row.has & kHasForLoop, has_fused = row.has & kHasFused;
    const json foreach = row.has & kHasForeach ? take("foreach") : json(), fused = has_fused ? take("fused") : json();
    for (const auto& [key, value] : {std::pair("args/foreach", &foreach), std::pair("args/fused", &fused)})
      if (!value->is_null() && !value->is_boolean())
        return error(key, "wrong-type", "found " + describe(*value) + "; expected true, false or null");
    if (foreach == true && fused == true)
      return error("args/fused", "inconsistent",
                   "found true, and foreach is true too: \"`fused` and `foreach` cannot be `True` together.\"");
    json bits = row.has == kHasBits ? take("optim_bits") : json(),
         pages = row.has == kHasBits ? take("is_paged") : json();
    if (row.has == kHasBits && !own_.contains("implementation")) {
      if (bits == 8)
        return error(
            "args/optim_bits", "not-modelled",
            "found 8: a trainer keeps embeddings in 32 bits then, and without one 8 bits are not supported yet; "
            "expected a name of transformers' optim, such as \"lion_8bit\"");
      own_["implementation"] = "bnb-32bit";
      if (pages == true) own_["paged"] = true;
    }
    const bool is_said = !foreach.is_null() || !fused.is_null();
    const char* said = fused == true ? "fused" : foreach == true ? "foreach" : "for-loop";
    if (!is_said) said = row.has & kHasForeach ? "foreach" : "for-loop";
    if (foreach == false && fused != true && !has_foreach)
      return error("args/foreach", "not-modelled",
                   std::string("found false: the for-loop of ") + row.path + " is not supported yet: leave it out");
    if (const auto own = own_.find("implementation"); own != own_.end()) {
      const auto has = [&](const char* text, Has which) { return *own == text && (row.has & which) != 0; };
      if (row.name > OptimizerName::sgd && !has("foreach", kHasForeach) && !has("fused", kHasFused) &&
          !has("for-loop", kHasForLoop) && !has("bnb-8bit", kHasBits) && !has("bnb-32bit", kHasBits))
        return error("implementation", "inconsistent",
                     "found " + describe(*own) + "; " + row.path + " here has" +
                         (row.has & kHasForeach ? " foreach" : "") + (row.has & kHasFused ? " fused" : "") +
                         (row.has & kHasForLoop ? " for-loop" : "") +
                         (row.has & kHasBits ? " bnb-8bit bnb-32bit" : ""));
      if (is_said && *own != said)
        return error("implementation", "inconsistent",
                     "found " + describe(*own) + ", and the arguments say " + said + ": leave one of them out");
      return std::nullopt;
    }
    if (is_path || is_said) own_["implementation"] = said;
    return std::nullopt;
  }

  json& own_;
  std::string pointer_;
};

/// A value of optim_args by its key; none: it is not there.
Result<std::vector<std::pair<std::string, std::string>>> parse_optim_args(std::string text) {
  std::vector<std::pair<std::string, std::string>> pairs;
  std::erase(text, ' ');
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    const std::string mapping = text.substr(begin, end - begin);
    if (std::count(mapping.begin(), mapping.end(), '=') != 1)
      return Error{"invalid", "optim_args",
                   "found " + quote(mapping) + "; expected pairs with commas between: \"momentum=0.9,centered=true\""};
    const std::size_t equals = mapping.find('=');
    pairs.emplace_back(mapping.substr(0, equals), mapping.substr(equals + 1));
    begin = end + 1;
  }
  return pairs;
}

/// In the job's own keys already, as most jobs have it: a first answer needs no more of the module than this.
bool is_spelled_out(const json& optimizer) {
  if (!optimizer.is_object() || optimizer.find("args") != optimizer.end() || optimizer.find("rest") != optimizer.end())
    return false;
  const auto name = optimizer.find("name");
  const std::string* text = name == optimizer.end() ? nullptr : name->get_ptr<const std::string*>();
  return text != nullptr && (*text == "adamw" || *text == "adam" || *text == "sgd");
}

std::string_view last_part(std::string_view path) { return path.substr(path.rfind('.') + 1); }

bool is_true(const std::string& value) {
  const std::string text = lower_case(value);
  return text == "true" || text == "1" || text == "yes";
}

}  // namespace

Result<json> optimizer_of_optim(const std::string& optim, const std::string& optim_args) {
  for (const Refused& refused : kRefused)
    if (refused.name == optim) return Error{refused.code, "optim", "found " + quote(optim) + ": " + refused.why};
  const auto found =
      std::find_if(std::begin(kOptims), std::end(kOptims), [&](const Optim& row) { return row.name == optim; });
  if (found == std::end(kOptims)) {
    std::vector<std::string_view> known;
    for (const Optim& row : kOptims) known.push_back(row.name);
    for (const OptimizerClass& row : kClasses) known.push_back(row.path);
    std::string_view near = closest(optim, known);
    // Another class of the same package is no slip of the pen.
    if (near.find('.') != std::string_view::npos && closest(last_part(optim), {last_part(near)}).empty()) near = {};
    std::string all;
    for (const std::string_view name : known) all += (all.empty() ? "" : ", ") + std::string(name);
    return Error{"not-modelled", "optim",
                 "found " + quote(optim) + "; " +
                     (near.empty() ? "others are not supported yet; expected " + all
                                   : "did you mean \"" + std::string(near) + "\"?")};
  }
  json spelled = json::parse(found->ours);
  const auto pairs = parse_optim_args(optim_args);
  if (!pairs) return pairs.error();
  for (const auto& [key, value] : *pairs) {
    if (has_word(found->texts, key)) spelled["args"][key] = value;
    if (has_word(found->switches, key)) {
      spelled["args"][key] = is_true(value);
    } else if (has_word(found->numbers, key)) {
      const Result<json> number = parse_json(value);
      if (!number || !number->is_number())
        return Error{"invalid", "optim_args", "found " + quote(value) + " for " + quote(key) + "; expected a number"};
      spelled["args"][key] = *number;
    }
  }
  return spelled;
}

bool copies_for_weight_decay(const json& optimizer) {
  const json name = optimizer.is_string()   ? optimizer
                    : optimizer.is_object() ? optimizer.value("name", json())
                                            : json();
  if (!name.is_string()) return false;
  const OptimizerClass* row = class_of(name.get_ref<const std::string&>());
  return row && has_word(row->decides, "weight_decay");
}

std::optional<Error> spell_out_optimizer(json& job) {
  const auto training = job.find("training");
  if (training == job.end() || !training->is_object()) return std::nullopt;
  const auto optimizer = training->find("optimizer");
  if (optimizer == training->end() || is_spelled_out(*optimizer)) return std::nullopt;
  return OptimizerSpelling(*optimizer, "/training/optimizer").spell_out();
}

}  // namespace oometer
