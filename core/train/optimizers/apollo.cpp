#include <utility>

#include "ops/ops.h"
#include "train/optimizers/classes.h"
#include "train/optimizers/factored.h"
#include "train/optimizers/foreach.h"
#include "train/optimizers/low_rank.h"

namespace oometer {

namespace {

/// apollo_torch's AdamW (1.0.3: apollo.py, random_projector.py): the projection is a random matrix, which changes every
/// update_proj_gap steps as it was made in the first; the gradient itself is scaled as its projection's moments say.
class Apollo final : public LowRankAdamW {
 public:
  using LowRankAdamW::LowRankAdamW;

  void step() override {
    LowRankAdamW::step();
    for (Tensor* name : {&grad_scaling_factor_, &scaled_grad_, &scaled_grad_norm_}) name->reset();
  }

 private:
  Tensor project(const Tensor& grad, State& state, bool is_first) override {
    if (is_first)
      state[ortho_matrix] = config_.args.proj == "svd" ? singular_vectors(grad, config_) : random_matrix(grad);
    return times_projection(grad, state[ortho_matrix], config_);
  }

  // GradientProjector.get_orthogonal_matrix
  Tensor random_matrix(const Tensor& grad) const {
    Tensor matrix;
    if (grad.dtype() != DType::float32) matrix = empty_like(Op::to_copy, grad, DType::float32);
    const std::int64_t rank = config_.args.rank;
    const bool is_left = projects_left(grad, config_.args.proj_type);
    const Shape sizes = is_left ? Shape{grad.size(0), rank} : Shape{rank, grad.size(1)};
    Tensor proj = empty(context_, Op::randn, sizes, DType::float32);
    Tensor scaled = div_scalar(proj);
    proj = std::move(scaled);
    if (grad.dtype() != DType::float32) proj = empty_like(Op::to_copy, proj, grad.dtype());
    matrix.reset();
    context_.set_role(proj, Role::optimizer_state, context_.module);
    return proj;
  }

  void project_back(const Tensor& of_p, State& state, bool is_first) override {
    const bool by_channel = config_.args.scale_type == "channel";
    const int norm_dim = of_p.size(0) < of_p.size(1) ? 0 : 1;
    const auto norm = [&](const Tensor& x) {
      return by_channel ? reduce(Op::linalg_vector_norm, x, {norm_dim}, false, x.dtype()) : norm_of(x);
    };
    {
      const Tensor numerator = norm(norm_grad_);
      Tensor denominator = norm(grad_);
      denominator = add_scalar(denominator);
      grad_scaling_factor_ = div(numerator, denominator);
    }
    if (by_channel && norm_dim == 1) grad_scaling_factor_ = unsqueeze(grad_scaling_factor_, 1);
    scaled_grad_ = mul(of_p, grad_scaling_factor_);
    if (is_first) {
      state[last_norm] = norm_of(scaled_grad_);
    } else {
      // The limiter is a number where the gradient's norm has not grown by more than 1 %.
      scaled_grad_norm_ = norm_of(scaled_grad_);
      {
        Tensor ratio = add_scalar(state[last_norm]);
        ratio = div(scaled_grad_norm_, ratio);
        const Tensor is_less = pointwise(Op::lt, {&ratio}, DType::boolean);
      }
      scaled_grad_ = div_scalar(scaled_grad_);
      state[last_norm] = div_scalar(scaled_grad_norm_);
    }
    context_.set_role(state[last_norm], Role::optimizer_state, context_.module);
    norm_grad_ = scaled_grad_;
    update_(Op::mul, {&norm_grad_});
  }

  Tensor grad_scaling_factor_, scaled_grad_, scaled_grad_norm_;  // names of `step`, too
};

}  // namespace

std::unique_ptr<Optimizer> make_apollo(Context& context, const OptimizerConfig& config) {
  return std::make_unique<Apollo>(context, config);
}

}  // namespace oometer
