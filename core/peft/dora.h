#pragma once

#include "peft/lora.h"

/// DoRA, after peft 0.21 (tuners/lora/dora.py, and DoraLinearVariant in variants.py).
namespace oometer {

/// DoraLinearVariant: the adapted weight's columns have a trained length. What that length is divided by, the norm of
/// the whole adapted weight, is computed anew in every forward.
class DoraAdapter : public LoraAdapter {
 public:
  using LoraAdapter::LoraAdapter;
  void add_modules(const Builder& layer, int kind) override;
  void make_parameters(std::vector<Parameter>& parameters, std::span<const Parameter> tied,
                       const GatherParameters& gather, ModuleId base_layer) override;
  void cast_parameters(LastCast& param) const override;
  Tensor update(const Linear& base_layer, const Tensor& x, const Tensor& result) const override;

 private:
  Tensor lora_weight() const;
  Tensor weight_norm(const Tensor& weight, const Tensor& lora_weight) const;
  Tensor magnitude_vector(const Tensor& argument, const Linear& base_layer, const Tensor& base_result) const;

  Tensor magnitude_;
  ModuleId lora_magnitude_vector_ = 0;
};

}  // namespace oometer
