#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "config/pattern.h"
#include "nn/module.h"
#include "peft/config.h"
#include "result.h"
#include "tensor/context.h"
#include "tensor/tensor_list.h"

namespace oometer {

/// deepspeed.zero.GatheredParameters, as gather_params_ctx (utils/integrations.py) and ModulesToSaveWrapper.update
/// enter it: what ZeRO-3 has cut is whole from a call with true to one with false, which is given the same tensors by
/// the handles that they have by then.
using GatherParameters = std::function<void(const TensorList& parameters, bool whole)>;

/// peft's BaseTuner (0.21, tuners/tuners_utils.py): which modules of a model get an adapter, and what becomes of its
/// parameters. While the model is built `wrap_linear` finds the targets (_create_and_replace), and `inject` does the
/// rest of get_peft_model once it stands.
class Tuner : public Wrapping {
 public:
  /// `kind`: its key in the job, "lora". The names outlive the tuner.
  Tuner(Context& context, const char* kind, const TargetModules& targets,
        const std::vector<std::string>& modules_to_save);

  std::shared_ptr<const LinearWrapper> wrap_linear(Builder& builder, std::int64_t in_features,
                                                   std::int64_t out_features) final;

  /// Freezes the model, makes the adapters and the modules that train in full; all parameters are then in the order of
  /// named_parameters(). An error where peft raises one: nothing was targeted, or something that cannot be. `tied`:
  /// what modules have of others.
  std::optional<Error> inject(std::vector<Parameter>& parameters, std::span<const Parameter> tied);
  /// Where ZeRO-3 has cut the model. Without it nothing is gathered.
  void gather_with(GatherParameters gather) { gather_ = std::move(gather); }

  /// What peft passes over without a word, for the report.
  const std::vector<std::string>& notes() const { return notes_; }

 protected:
  /// The tuner's layer around a Linear; its modules come below `builder`, which moves on to its base layer.
  virtual std::shared_ptr<const LinearWrapper> create(Builder& builder, std::int64_t in_features,
                                                      std::int64_t out_features) = 0;
  /// Makes the layers' parameters, in the order in which `create` was called, in the dtype of their base layers. The
  /// model's own are frozen by now.
  virtual void make_parameters(std::vector<Parameter>& parameters, std::span<const Parameter> tied) = 0;
  /// cast_adapter_dtype: half-precision adapters become float32.
  virtual void cast_parameters() = 0;

  Context& context_;
  GatherParameters gather_;

 private:
  /// A module that was wrapped, and the modules that came below it with that: not the model's own.
  struct Target {
    ModuleId module, last;
  };

  bool is_target(ModuleId module) const;
  bool is_saved_within(ModuleId module) const;
  bool is_saved_as(ModuleId module, const std::string& name) const;
  std::optional<Error> check_targets();
  std::optional<Error> nothing_targeted(const std::vector<std::string_view>& linears) const;
  void save_modules(std::vector<Parameter>& parameters);

  Error error(const char* code, const std::string& message) const;

  const char* kind_;
  const TargetModules& targets_;
  const std::vector<std::string>& modules_to_save_;
  std::optional<Pattern> pattern_;
  std::vector<Target> found_;
  std::vector<std::string> notes_;
};

}  // namespace oometer
