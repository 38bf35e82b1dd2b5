#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "train/optimizer.h"

/// Optimizers that see the gradients of some layers through a projection to a few rows or columns: GaLore's and
/// APOLLO's.
namespace oometer {

/// Where such a projection stands: at a gradient's left, or at its right. `proj_type`: std, reverse_std, left, right.
inline bool projects_left(const Tensor& grad, const std::string& proj_type) {
  if (proj_type == "left" || proj_type == "right") return proj_type == "left";
  return (grad.size(0) < grad.size(1)) == (proj_type == "std");
}

/// Whether Trainer's optim_target_modules name it: the weight of a Linear.
inline bool is_projected(const Context& context, const OptimizerConfig& config, const Parameter& parameter) {
  if (context.log.modules[parameter.module].type != std::string_view("Linear") ||
      parameter.name != std::string_view("weight"))
    return false;
  const std::string path = module_path(context.log, parameter.module);
  const std::vector<std::string>& targets = config.args.target_modules;
  return std::any_of(targets.begin(), targets.end(),
                     [&](const std::string& target) { return path.find(target) != std::string::npos; });
}

/// A class whose parameter groups _setup_low_rank_optimizer makes (transformers 5.23, trainer_optimizer.py): the
/// weights that are projected come second.
template <class Base>
class LowRank : public Base {
 public:
  using Base::Base;

  void add_group(std::vector<Parameter> parameters, bool decays) override {
    std::vector<Parameter> others, targets;
    for (Parameter& parameter : parameters)
      (is_projected(this->context_, this->config_, parameter) ? targets : others).push_back(std::move(parameter));
    Base::add_group(std::move(others), decays);
    Base::add_group(std::move(targets), decays);
  }

 protected:
  bool has_rank(const typename Base::Group& group) const { return &group != &this->groups_.front(); }
};

/// The AdamW that both copy from an old transformers: one parameter after another, in the gradient's type.
class LowRankAdamW : public LowRank<Optimizer> {
 public:
  using LowRank::LowRank;

  void step() override;

 protected:
  enum : std::size_t { exp_avg, exp_avg_sq, ortho_matrix, last_norm };

  /// The gradient as the moments see it. `is_first`: the step that makes the projection.
  virtual Tensor project(const Tensor& grad, State& state, bool is_first) = 0;
  /// What the moments make of it, `norm_grad_`, becomes the change of the weight.
  virtual void project_back(const Tensor& of_p, State& state, bool is_first) = 0;

  // Names of `step`, which outlive the loops over groups and parameters.
  Tensor grad_, denom_, norm_grad_;

 private:
  State make_state(const Parameter&) override { return {}; }
  void update(Group& group) override;
};

/// GaLoreProjector: a gradient's singular vectors. cuSOLVER's workspace is not counted.
Tensor singular_vectors(const Tensor& grad, const OptimizerConfig& config);

/// GaLoreProjector.project, and project_back
Tensor times_projection(const Tensor& grad, const Tensor& ortho_matrix, const OptimizerConfig& config);
Tensor from_projection(const Tensor& low_rank_grad, const Tensor& ortho_matrix, bool is_left);

}  // namespace oometer
