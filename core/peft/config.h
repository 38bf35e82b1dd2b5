#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

/// The configuration of `peft`: the job's `training.lora`, `training.ia3` and `training.peft` turned into values. Names
/// are LoraConfig's (peft 0.21, tuners/lora/config.py) but for `rank` (r), `alpha` (lora_alpha) and `dropout`
/// (lora_dropout).
namespace oometer {

/// Which biases train beside the adapters.
enum class LoraBias : std::uint8_t { none, all, lora_only };

/// `target_modules`, in its three forms, and what takes some of them away.
struct TargetModules {
  std::vector<std::string> names;                 ///< dotted names at any depth, if it is a list
  std::string pattern;                            ///< a regular expression of the whole path, if it is a text
  bool all_linear = false;                        ///< "all-linear": every Linear but the output embeddings
  std::vector<std::string> excluded_names;        ///< `exclude_modules`, if it is a list
  std::string excluded_pattern;                   ///< the same, if it is a text
  std::vector<std::int64_t> layers_to_transform;  ///< of the named ones those of these layers; empty: of all
  std::vector<std::string> layers_pattern;        ///< what such layers are called; empty: anything

  bool operator==(const TargetModules&) const = default;
};

/// What a pattern of modules' names has in place of the config's own value, in the file's order.
using NumberByModule = std::vector<std::pair<std::string, std::int64_t>>;

struct LoraConfig {
  std::int64_t rank = 8;
  double alpha = 8;
  double dropout = 0;
  bool dropout_is_off = false;  ///< its Dropout modules have p 0, and are no Identity (disable_dropout_in_model)
  LoraBias bias = LoraBias::none;
  TargetModules target_modules;
  std::vector<std::string> target_parameters;  ///< dotted names of parameters that are no layer's
  std::vector<std::string> modules_to_save;    ///< trained in full: a copy of each module whose path ends so
  std::vector<std::string> also_train;         ///< requires_grad_(True) on these components after get_peft_model
  bool use_dora = false;                       ///< each adapted weight's columns have a trained length
  bool use_rslora = false;                     ///< another scale, alpha / sqrt(rank): no memory
  bool lora_bias = false;                      ///< lora_B has a bias
  bool autocast_adapter_dtype = true;          ///< adapters of half-precision weights are float32
  NumberByModule rank_pattern{};               ///< other ranks
  NumberByModule trainable_token_indices{};    ///< how many rows of these embeddings train
  /// Axolotl's functions in the place of the layers (peft/lora_kernels.h).
  bool lora_mlp_kernel = false, lora_qkv_kernel = false, lora_o_kernel = false;

  bool has_kernels() const { return lora_mlp_kernel || lora_qkv_kernel || lora_o_kernel; }

  bool operator==(const LoraConfig&) const = default;
};

/// (IA)^3: IA3Config (tuners/ia3/config.py).
struct Ia3Config {
  TargetModules target_modules;
  TargetModules feedforward_modules;  ///< those of the targets whose input is scaled, not the output
  std::vector<std::string> modules_to_save, also_train;
  bool autocast_adapter_dtype = true;

  bool operator==(const Ia3Config&) const = default;
};

class PeftMethod;

/// An adapter of `training.peft`.
struct PeftAdapter {
  std::string name = "default";
  bool active = true;                  ///< set_adapter: it runs and trains; one that is not stays beside those that do
  bool autocast_adapter_dtype = true;  ///< see LoraConfig
  std::string config;                  ///< its adapter_config.json
  std::shared_ptr<const PeftMethod> method;  ///< what that says

  bool operator==(const PeftAdapter& other) const {
    return name == other.name && active == other.active && autocast_adapter_dtype == other.autocast_adapter_dtype &&
           config == other.config;
  }
};

}  // namespace oometer
