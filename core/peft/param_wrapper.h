#pragma once

#include <memory>
#include <string>
#include <vector>

#include "peft/lora.h"

namespace oometer {

/// lora.ParamWrapper (peft 0.21, tuners/lora/layer.py): adapters of a module's own parameters, of experts say. One
/// wrapper for each, the last parameter's outermost. Its forward puts the adapted weights in the parameters' places,
/// computed when they are asked for and kept until the module has returned (torch.nn.utils.parametrize).
class ParamWrapper : public ParametersWrapper, public LoraLayer {
 public:
  /// `builder` moves on to the module itself. `targets`: in the order of its named_parameters().
  ParamWrapper(const LoraModel& model, Builder& builder, const std::vector<ParameterSizes>& targets,
               bool is_transposed);
  void make_parameters(std::vector<Parameter>& parameters, std::span<const Parameter> tied,
                       const GatherParameters& gather, std::size_t adapter) override;
  void cast_parameters(std::size_t adapter, LastCast& param) const override;
  ModuleId base_layer() const override { return base_layer_; }
  bool is_of_parameters() const override { return true; }

  std::unique_ptr<Call> call(std::span<const NamedParameter> parameters) const override;

 private:
  class ParametrizedCall;
  friend class ParametrizedCall;
  /// One parameter's, in the order of named_parameters().
  struct Target {
    const char* name;
    std::int64_t num_experts, rank;
    ModuleId module;
    std::unique_ptr<LoraAdapter> adapter;
  };

  bool scales(const Target& target) const;

  const LoraModel& model_;
  std::vector<Target> targets_;
  bool is_transposed_;
  ModuleId base_layer_ = 0;
};

}  // namespace oometer
