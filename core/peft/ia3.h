#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "config/pattern.h"
#include "peft/tuner.h"

/// (IA)^3, after peft 0.21 (tuners/ia3/model.py, layer.py).
namespace oometer {

/// ia3.Linear: the base layer's output, or, in a feed-forward layer, its input, scaled by a trained vector.
class Ia3Linear : public LinearWrapper {
 public:
  Ia3Linear(bool is_feedforward, Builder& builder, std::int64_t in_features, std::int64_t out_features);
  /// update_layer: the vector, in the base layer's dtype.
  void make_parameters(std::vector<Parameter>& parameters);
  void cast_parameters() const;

  Tensor operator()(const Linear& base_layer, const Tensor& x) const override;

 private:
  Shape sizes_;
  bool is_feedforward_;
  Builder ia3_l_builder_;
  Tensor ia3_l_;
  ModuleId module_;
};

/// IA3Model. The config outlives it.
class Ia3Model : public Tuner {
 public:
  Ia3Model(Context& context, const Ia3Config& config, std::string kind = "ia3");

 protected:
  std::shared_ptr<const LinearWrapper> create(Builder& builder, std::int64_t in_features,
                                              std::int64_t out_features) override;
  void make_parameters(std::vector<Parameter>& parameters, std::span<const Parameter> tied,
                       std::size_t adapter) override;
  void cast_parameters(std::size_t adapter) override;

 private:
  bool is_feedforward(ModuleId module) const;

  const Ia3Config& config_;
  std::optional<Pattern> feedforward_;
  std::vector<std::shared_ptr<Ia3Linear>> layers_;
};

}  // namespace oometer
