#pragma once

#include <cstdint>
#include <string>
#include <vector>

/// The configuration of `peft`: the job's `training.lora` turned into values. Names are LoraConfig's (peft 0.21,
/// tuners/lora/config.py) but for `rank` (r), `alpha` (lora_alpha) and `dropout` (lora_dropout).
namespace oometer {

/// Which biases train beside the adapters.
enum class LoraBias : std::uint8_t { none, all, lora_only };

/// `target_modules`, in its three forms.
struct TargetModules {
  std::vector<std::string> names;  ///< dotted names at any depth, if it is a list
  std::string pattern;             ///< a regular expression of the whole path, if it is a text
  bool all_linear = false;         ///< "all-linear": every Linear but the output embeddings

  bool operator==(const TargetModules&) const = default;
};

struct LoraConfig {
  std::int64_t rank = 8;
  double alpha = 8;
  double dropout = 0;
  LoraBias bias = LoraBias::none;
  TargetModules target_modules;
  std::vector<std::string> modules_to_save;  ///< trained in full: a copy of each module whose path ends so
  std::vector<std::string> also_train;       ///< requires_grad_(True) on these components after get_peft_model
  bool use_dora = false;                     ///< each adapted weight's columns have a trained length
  bool use_rslora = false;                   ///< another scale, alpha / sqrt(rank): no memory
  bool lora_bias = false;                    ///< lora_B has a bias
  bool autocast_adapter_dtype = true;        ///< adapters of half-precision weights are float32

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

}  // namespace oometer
