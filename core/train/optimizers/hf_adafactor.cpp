#include "train/optimizers/hf_adafactor.h"

#include <utility>

#include "ops/ops.h"
#include "train/optimizers/classes.h"
#include "train/optimizers/factored.h"
#include "train/optimizers/foreach.h"

namespace oometer {

Tensor HfAdafactor::project(const Group&, Tensor grad, Tensor&) { return grad; }

Tensor HfAdafactor::project_back(const Group&, const Tensor&, Tensor update, const Tensor&) { return update; }

void HfAdafactor::make_moments(State& state) const {
  const auto zeros = [&](Op op, const Shape& sizes) {
    return empty(context_, op, sizes, DType::float32, Role::optimizer_state);
  };
  Tensor first_moment;
  if (use_first_moment()) first_moment = zeros(Op::zeros_like, grad_.sizes());
  if (is_factored()) {
    Shape rows, columns;
    for (int i = 0; i < grad_.ndim(); ++i) {
      if (i != grad_.ndim() - 1) rows.push_back(grad_.size(i));
      if (i != grad_.ndim() - 2) columns.push_back(grad_.size(i));
    }
    state.push_back(zeros(Op::to_copy, rows));
    state.push_back(zeros(Op::to_copy, columns));
  } else {
    state.push_back(zeros(Op::zeros_like, grad_.sizes()));
  }
  if (first_moment) state.push_back(std::move(first_moment));
}

void HfAdafactor::update(Group& group) {
  for_each_tensor(group.parameters, group.states, [&](const Tensor& p, const Tensor& of_p, State& state) {
    const bool is_first = state.empty();
    if (is_first) state.resize(rms + 1);
    grad_ = of_p;
    if (grad_.dtype() != DType::float32) grad_ = empty_like(Op::to_copy, grad_, DType::float32);
    {
      Tensor projected = project(group, grad_, state[ortho_matrix]);
      grad_ = std::move(projected);
    }
    if (is_first) make_moments(state);
    p_data_fp32_ = p;
    if (p.dtype() != DType::float32) p_data_fp32_ = empty_like(Op::to_copy, p_data_fp32_, DType::float32);
    Tensor new_rms = rms_of(p_data_fp32_);
    context_.set_role(new_rms, Role::optimizer_state, context_.module);
    state[rms] = std::move(new_rms);
    if (config_.args.scale_parameter) {
      { const Tensor is_larger = pointwise(Op::gt, {&state[rms]}, DType::boolean); }
      lr_ = mul_scalar(state[rms]);
    }
    {
      Tensor square = pow(grad_, 2);
      Tensor shifted = add_scalar(square);
      square.reset();
      update_of_p_ = std::move(shifted);
    }
    scale(state);
    divide_by_rms(update_of_p_);
    update_(Op::mul, {&update_of_p_});
    if (use_first_moment()) {
      update_(Op::add, {&state[exp_avg()], &update_of_p_});
      update_of_p_ = state[exp_avg()];
    }
    {
      Tensor back = project_back(group, p, update_of_p_, state[ortho_matrix]);
      update_of_p_ = std::move(back);
    }
    if (group.weight_decay != 0) {
      Tensor alpha;
      if (config_.args.scale_parameter) alpha = mul_scalar(lr_);
      update_(Op::add, {&p_data_fp32_});
    }
    const Tensor negative = pointwise(Op::neg, {&update_of_p_}, DType::float32);
    update_(Op::add, {&p_data_fp32_, &negative});
    if (p.dtype() != DType::float32) update_(Op::copy, {&p, &p_data_fp32_});
  });
}

/// What the second moments make of the gradient.
void HfAdafactor::scale(State& state) {
  if (!is_factored()) {
    update_(Op::add, {&state[exp_avg_sq], &update_of_p_});
    Tensor root = pointwise(Op::rsqrt, {&state[exp_avg_sq]}, DType::float32);
    update_(Op::mul, {&root, &grad_});
    update_of_p_ = std::move(root);
    return;
  }
  for (const int dim : {-1, -2}) {
    const Tensor means = mean(update_of_p_, dim, false);
    update_(Op::add, {&state[dim == -1 ? exp_avg_sq_row : exp_avg_sq_col], &means});
  }
  Tensor estimate = approx_sq_grad(state[exp_avg_sq_row], state[exp_avg_sq_col]);
  update_of_p_ = std::move(estimate);
  update_(Op::mul, {&update_of_p_, &grad_});
}

void HfAdafactor::step() {
  Optimizer::step();
  grad_.reset();
  p_data_fp32_.reset();
  lr_.reset();
  update_of_p_.reset();
}

std::unique_ptr<Optimizer> make_hf_adafactor(Context& context, const OptimizerConfig& config) {
  return std::make_unique<HfAdafactor>(context, config);
}

}  // namespace oometer
