#pragma once

#include <memory>
#include <vector>

#include "peft/tuner.h"

/// LoRA, after peft 0.21 (tuners/lora/model.py, layer.py).
namespace oometer {

/// lora.Linear: the base layer's result, and the adapters' added to it.
class LoraLinear : public LinearWrapper {
 public:
  LoraLinear(const LoraConfig& config, Builder& builder, std::int64_t in_features, std::int64_t out_features);
  /// update_layer: A and B, in the base layer's dtype. The base layer's own are among `parameters` or `tied`.
  virtual void make_parameters(std::vector<Parameter>& parameters, std::span<const Parameter> tied,
                               const GatherParameters& gather);
  virtual void cast_parameters() const;

  Tensor operator()(const Linear& base_layer, const Tensor& x) const override;

  ModuleId base_layer() const { return base_layer_; }

 protected:
  /// The base layer's result with the adapter's part in it.
  virtual Tensor update(const Linear& base_layer, const Tensor& x, const Tensor& result) const;
  Tensor dropout(const Tensor& x) const;

  const LoraConfig& config_;
  std::int64_t in_features_, out_features_;
  Builder lora_a_, lora_b_;
  Linear lora_A_, lora_B_;
  ModuleId module_, base_layer_, lora_dropout_;

 private:
  Tensor input(const Tensor& x) const;
};

/// LoraModel. The config outlives it.
class LoraModel : public Tuner {
 public:
  LoraModel(Context& context, const LoraConfig& config)
      : Tuner(context, "lora", config.target_modules, config.modules_to_save), config_(config) {}

 protected:
  std::shared_ptr<const LinearWrapper> create(Builder& builder, std::int64_t in_features,
                                              std::int64_t out_features) override;
  void make_parameters(std::vector<Parameter>& parameters, std::span<const Parameter> tied) override;
  void cast_parameters() override;

 private:
  const LoraConfig& config_;
  std::vector<std::shared_ptr<LoraLinear>> layers_;
};

}  // namespace oometer
