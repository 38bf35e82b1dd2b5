#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include "ops/ops.h"
#include "train/optimizers/classes.h"
#include "train/optimizers/foreach.h"

namespace oometer {

namespace {

/// torch.norm(x), of all elements
Tensor norm(const Tensor& x) {
  std::vector<int> dims;
  for (int i = 0; i < x.ndim(); ++i) dims.push_back(i);
  return reduce(Op::linalg_vector_norm, x, dims, false, x.dtype());
}

/// apollo_torch's AdamW (1.0.3: apollo.py, random_projector.py): the gradients of the layers that Trainer was told of
/// (optim_target_modules) are projected to a few rows or columns, with a random matrix that changes every
/// update_proj_gap steps as it was made in the first.
class Apollo final : public Optimizer {
 public:
  using Optimizer::Optimizer;

  /// _setup_low_rank_optimizer (trainer_optimizer.py): the weights of the linear layers that are named come second.
  void add_group(std::vector<Parameter> parameters, bool decays) override {
    std::vector<Parameter> others, targets;
    for (Parameter& parameter : parameters) (is_target(parameter) ? targets : others).push_back(std::move(parameter));
    if (targets.empty() && !context_.refusal)
      context_.refusal = Error{"inconsistent", "/training/optimizer/args/target_modules",
                               "found names that no linear layer has: \"No target modules found for apollo_adamw\"; "
                               "expected such as \"self_attn\" and \"mlp\""};
    Optimizer::add_group(std::move(others), decays);
    Optimizer::add_group(std::move(targets), decays);
  }

  void step() override {
    Optimizer::step();
    for (Tensor* name : {&grad_, &denom_, &norm_grad_, &grad_scaling_factor_, &scaled_grad_, &scaled_grad_norm_})
      name->reset();
  }

 private:
  enum : std::size_t { exp_avg, exp_avg_sq, ortho_matrix, last_norm };

  /// _setup_low_rank_optimizer: the second group.
  bool is_projected(const Group& group) const { return &group != &groups_.front(); }

  bool is_target(const Parameter& parameter) const {
    if (context_.log.modules[parameter.module].type != std::string_view("Linear") ||
        parameter.name != std::string_view("weight"))
      return false;
    const std::string path = module_path(context_.log, parameter.module);
    const std::vector<std::string>& targets = config_.args.target_modules;
    return std::any_of(targets.begin(), targets.end(),
                       [&](const std::string& target) { return path.find(target) != std::string::npos; });
  }

  State make_state(const Parameter&) override { return {}; }

  void update(Group& group) override {
    for_each_tensor(group.parameters, group.states, [&](const Tensor& p, const Tensor& of_p, State& state) {
      const bool has_rank = is_projected(group);
      const bool is_first = state.empty();
      if (is_first) state.resize(has_rank ? 4 : 2);
      grad_ = of_p;
      if (has_rank) {
        if (is_first) state[ortho_matrix] = orthogonal_matrix(grad_);
        grad_ = project(grad_, state[ortho_matrix]);
      }
      if (is_first)
        for (const std::size_t i : {exp_avg, exp_avg_sq})
          state[i] = empty(context_, Op::zeros_like, grad_.sizes(), grad_.dtype(), Role::optimizer_state);
      update_(Op::add, {&state[exp_avg], &grad_});
      update_(Op::addcmul, {&state[exp_avg_sq], &grad_});
      denom_ = pointwise(Op::sqrt, {&state[exp_avg_sq]}, grad_.dtype());
      update_(Op::add, {&denom_});
      norm_grad_ = div(state[exp_avg], denom_);
      if (has_rank) scale(of_p, state, is_first);
      update_(Op::add, {&p, &norm_grad_});
      if (group.weight_decay > 0) update_(Op::add, {&p});
    });
  }

  bool is_wide(const Tensor& grad) const { return grad.size(0) < grad.size(1); }

  // GradientProjector.get_orthogonal_matrix
  Tensor orthogonal_matrix(const Tensor& grad) const {
    Tensor matrix;
    if (grad.dtype() != DType::float32) matrix = empty_like(Op::to_copy, grad, DType::float32);
    const std::int64_t rank = config_.args.rank;
    const Shape sizes = is_wide(grad) ? Shape{grad.size(0), rank} : Shape{rank, grad.size(1)};
    Tensor proj = empty(context_, Op::randn, sizes, DType::float32);
    Tensor scaled = div_scalar(proj);
    proj = std::move(scaled);
    if (grad.dtype() != DType::float32) proj = empty_like(Op::to_copy, proj, grad.dtype());
    matrix.reset();
    context_.set_role(proj, Role::optimizer_state, context_.module);
    return proj;
  }

  Tensor project(const Tensor& grad, const Tensor& matrix) const {
    const Tensor transposed = transpose(matrix, 0, 1);
    return is_wide(grad) ? matmul(transposed, grad) : matmul(grad, transposed);
  }

  void scale(const Tensor& of_p, State& state, bool is_first) {
    const int norm_dim = is_wide(of_p) ? 0 : 1;
    {
      const Tensor numerator = reduce(Op::linalg_vector_norm, norm_grad_, {norm_dim}, false, norm_grad_.dtype());
      Tensor denominator = reduce(Op::linalg_vector_norm, grad_, {norm_dim}, false, grad_.dtype());
      denominator = add_scalar(denominator);
      grad_scaling_factor_ = div(numerator, denominator);
    }
    if (norm_dim == 1) grad_scaling_factor_ = unsqueeze(grad_scaling_factor_, 1);
    scaled_grad_ = mul(of_p, grad_scaling_factor_);
    if (is_first) {
      state[last_norm] = norm(scaled_grad_);
    } else {
      // The limiter is a number where the gradient's norm has not grown by more than 1 %.
      scaled_grad_norm_ = norm(scaled_grad_);
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

  // Names of `step`, which outlive the loops over groups and parameters.
  Tensor grad_, denom_, norm_grad_, grad_scaling_factor_, scaled_grad_, scaled_grad_norm_;
};

}  // namespace

std::unique_ptr<Optimizer> make_apollo(Context& context, const OptimizerConfig& config) {
  return std::make_unique<Apollo>(context, config);
}

}  // namespace oometer
