#include <algorithm>

#include "peft/methods.h"
#include "peft/tuner.h"

/// LN tuning, after peft 0.21 (tuners/ln_tuning/model.py, layer.py): copies of the norms train, of any type of module.
namespace oometer {

namespace {

struct LnTuningConfig final : TunerConfig {
  std::unique_ptr<Tuner> tuner(Context& context, const std::string& kind,
                               std::span<const PeftAdapter> adapters) const override;
};

class LnTuningModel : public Tuner {
 public:
  LnTuningModel(Context& context, const std::string& kind, const LnTuningConfig& config)
      : Tuner(context, kind, config.target_modules, config.modules_to_save) {}

 protected:
  std::shared_ptr<const LinearWrapper> create(Builder&, std::int64_t, std::int64_t) override { return nullptr; }

  std::optional<Error> check_targets() override {
    ModuleId within = 0;
    for (ModuleId module = 1; module < context_.log.modules.size(); ++module) {
      if (!is_target(module)) continue;
      for (ModuleId at = module; !context_.log.is_root(at); at = context_.log.modules[at].parent)
        if (at == within && at != module)
          return error("not-modelled", "found " + module_path(context_.log, module) + " within " +
                                           module_path(context_.log, within) +
                                           ", and both among the targets; expected one of them");
      within = module;
      targets_.push_back(module);
    }
    if (!targets_.empty()) return std::nullopt;
    return error("inconsistent",
                 "found no module of such a name (or only within modules_to_save); expected names of norms, such as "
                 "input_layernorm");
  }

  void make_parameters(std::vector<Parameter>& parameters, std::span<const Parameter> tied, std::size_t) override {
    for (const Parameter& shared : tied)
      for (const Parameter& parameter : parameters)
        for (const ModuleId target : targets_)
          if (target == shared.module || (target == parameter.module && parameter.tensor.get() == shared.tensor.get()))
            return refuse(error("not-modelled", "found " + module_path(context_.log, target) +
                                                    ", which has its weight with another module: that is not "
                                                    "supported yet"));
    train_copies(parameters, targets_);
  }

  // LNTuningModel._cast_adapter_dtype: copies keep the type of their layers.
  void cast_parameters(std::size_t) override {}

 private:
  std::vector<ModuleId> targets_;
};

std::unique_ptr<Tuner> LnTuningConfig::tuner(Context& context, const std::string& kind,
                                             std::span<const PeftAdapter>) const {
  return std::make_unique<LnTuningModel>(context, kind, *this);
}

}  // namespace

std::shared_ptr<const PeftMethod> read_ln_tuning(ConfigReader& reader, const PeftDefaults& defaults) {
  const auto config = std::make_shared<LnTuningConfig>();
  read_targets(reader, config->target_modules, config->modules_to_save, defaults.ln_tuning);
  if (config->target_modules.all_linear)
    reader.fail_found("target_modules", "not-modelled", "expected names of norms, or a regular expression");
  return config;
}

}  // namespace oometer
