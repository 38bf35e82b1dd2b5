#pragma once

#include "peft/lora.h"

/// DoRA, after peft 0.21 (tuners/lora/dora.py, and DoraLinearVariant in variants.py).
namespace oometer {

/// lora.Linear with use_dora: the adapted weight's columns have a trained length. What that length is divided by, the
/// norm of the whole adapted weight, is computed anew in every forward.
class DoraLinear : public LoraLinear {
 public:
  DoraLinear(const LoraConfig& config, Builder& builder, std::int64_t in_features, std::int64_t out_features);
  void make_parameters(std::vector<Parameter>& parameters, std::span<const Parameter> tied,
                       const GatherParameters& gather) override;
  void cast_parameters() const override;

 protected:
  Tensor update(const Linear& base_layer, const Tensor& x, const Tensor& result) const override;

 private:
  Tensor lora_weight() const;
  Tensor weight_norm(const Tensor& weight, const Tensor& lora_weight) const;
  Tensor magnitude_vector(const Tensor& argument, const Linear& base_layer, const Tensor& base_result) const;

  Tensor magnitude_;
  ModuleId lora_magnitude_vector_;
};

}  // namespace oometer
