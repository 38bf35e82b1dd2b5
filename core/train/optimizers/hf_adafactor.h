#pragma once

#include "train/optimizer.h"

namespace oometer {

/// transformers.optimization.Adafactor (5.23): one parameter after another, in float32. Its RMS is a tensor a
/// parameter.
class HfAdafactor : public Optimizer {
 public:
  using Optimizer::Optimizer;

  void step() override;

 protected:
  /// GaLore's: what the moments see of a gradient, and what becomes of what they give.
  virtual Tensor project(const Group&, Tensor grad, Tensor& basis);
  virtual Tensor project_back(const Group&, const Tensor& p, Tensor update, const Tensor& basis);

 private:
  enum : std::size_t { ortho_matrix, rms, exp_avg_sq_row, exp_avg_sq = exp_avg_sq_row, exp_avg_sq_col };

  State make_state(const Parameter&) override { return {}; }
  void update(Group& group) override;
  void make_moments(State& state) const;
  void scale(State& state);
  bool use_first_moment() const { return config_.args.beta1; }
  bool is_factored() const { return grad_.ndim() >= 2; }
  std::size_t exp_avg() const { return is_factored() ? 4 : 3; }

  // Names of `step`, which outlive the loops over groups and parameters: grad, p_data_fp32, lr, update.
  Tensor grad_, p_data_fp32_, lr_, update_of_p_;
};

}  // namespace oometer
