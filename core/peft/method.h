#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "config/pattern.h"
#include "config/reader.h"
#include "peft/config.h"
#include "tensor/context.h"

/// An adapter_config.json: the config classes of peft 0.21 by their own keys and defaults.
namespace oometer {

class Tuner;

/// A config class of peft's.
class PeftMethod {
 public:
  virtual ~PeftMethod() = default;
  /// The tuner that get_peft_model makes. `kind`: where the adapters stand in the job, "peft"; all are of this method,
  /// which is the first one's, and outlive it.
  virtual std::unique_ptr<Tuner> tuner(Context& context, const std::string& kind,
                                       std::span<const PeftAdapter> adapters) const = 0;
  virtual const TargetModules* target_modules() const { return nullptr; }
  /// Virtual tokens train, and no layer of the model is wrapped.
  virtual bool is_prompt_learning() const { return false; }
};

/// What most config classes have.
struct TunerConfig : PeftMethod {
  TargetModules target_modules;
  std::vector<std::string> modules_to_save;
};

/// What peft takes where a config has no target_modules: its own tables of the model_type (utils/constants.py).
struct PeftDefaults {
  std::vector<std::string> lora, ia3, ia3_feedforward, ln_tuning;
  bool ties_embeddings = false;
  bool checkpoints = false;
  bool loads_on_host = false;  ///< adapters are made there, and what their initial values take is not the device's
};

/// `target_modules`: a list of names, a regular expression, or "all-linear"; absent: `usual`.
TargetModules read_target_modules(ConfigReader& reader, std::vector<std::string> usual,
                                  const char* key = "target_modules");
/// The same with exclude_modules, layers_to_transform, layers_pattern; and modules_to_save.
void read_targets(ConfigReader& reader, TargetModules& targets, std::vector<std::string>& modules_to_save,
                  std::vector<std::string> usual);
/// IA3Config.__post_init__: feedforward_modules are some of target_modules.
void check_feedforward(ConfigReader& reader, const Ia3Config& config);
/// Trained biases are LoRA's only.
void refuse_bias(ConfigReader& reader);
/// A key such as rank_pattern: {"q_proj": 64}.
NumberByModule read_pattern(ConfigReader& reader, const char* key);

/// The rank_pattern of LoHa and LoKr, and what they have besides that is not modelled (LycorisConfig).
NumberByModule read_lycoris_pattern(ConfigReader& reader);
/// What such a key says of a module (get_pattern_key: utils/other.py).
class ModulePattern {
 public:
  explicit ModulePattern(const NumberByModule& numbers);
  std::int64_t of(const std::string& path, std::int64_t otherwise) const;
  bool empty() const { return patterns_.empty(); }

 private:
  std::vector<std::pair<Pattern, std::int64_t>> patterns_;
};

/// Reads the object of one adapter by its peft_type; null where it is an error. What is not peft's own (`name`,
/// `active`, `autocast_adapter_dtype`) was read before.
std::shared_ptr<const PeftMethod> read_peft_method(ConfigReader& reader, const PeftDefaults& defaults);

/// The values of peft_type that are modelled.
std::vector<std::string_view> peft_types();

}  // namespace oometer
