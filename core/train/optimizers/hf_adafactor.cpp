#include <utility>

#include "ops/ops.h"
#include "train/optimizers/classes.h"
#include "train/optimizers/foreach.h"

namespace oometer {

namespace {

/// transformers.optimization.Adafactor (5.23): one parameter after another, in float32. Its RMS is a tensor a
/// parameter.
class HfAdafactor final : public Optimizer {
 public:
  using Optimizer::Optimizer;

 private:
  enum : std::size_t { rms, exp_avg_sq_row, exp_avg_sq = exp_avg_sq_row, exp_avg_sq_col };

  bool use_first_moment() const { return config_.args.beta1; }
  std::size_t exp_avg(const Tensor& param) const { return param.ndim() >= 2 ? 3 : 2; }

  State make_state(const Parameter&) override { return {}; }

  State state_of(const Tensor& grad) const {
    const auto zeros = [&](Op op, const Shape& sizes) {
      return empty(context_, op, sizes, DType::float32, Role::optimizer_state);
    };
    State state(1);
    Tensor first_moment;
    if (use_first_moment()) first_moment = zeros(Op::zeros_like, grad.sizes());
    if (grad.ndim() >= 2) {
      Shape rows, columns;
      for (int i = 0; i < grad.ndim(); ++i) {
        if (i != grad.ndim() - 1) rows.push_back(grad.size(i));
        if (i != grad.ndim() - 2) columns.push_back(grad.size(i));
      }
      state.push_back(zeros(Op::to_copy, rows));
      state.push_back(zeros(Op::to_copy, columns));
    } else {
      state.push_back(zeros(Op::zeros_like, grad.sizes()));
    }
    if (first_moment) state.push_back(std::move(first_moment));
    return state;
  }

  void update(Group& group) override {
    for_each_tensor(group.parameters, group.states, [&](const Tensor& p, const Tensor& of_p, State& state) {
      grad_ = of_p;
      if (grad_.dtype() != DType::float32) grad_ = empty_like(Op::to_copy, grad_, DType::float32);
      if (state.empty()) state = state_of(grad_);
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
      scale(p, state);
      divide_by_rms();
      update_(Op::mul, {&update_of_p_});
      if (use_first_moment()) {
        update_(Op::add, {&state[exp_avg(p)], &update_of_p_});
        update_of_p_ = state[exp_avg(p)];
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
  void scale(const Tensor& p, State& state) {
    if (p.ndim() < 2) {
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
    Tensor r_factor, c_factor, estimate;  // _approx_sq_grad
    {
      const Tensor row_mean = mean(state[exp_avg_sq_row], -1, true);
      r_factor = div(state[exp_avg_sq_row], row_mean);
    }
    r_factor = unsqueeze(r_factor, r_factor.ndim());
    const Tensor columns = unsqueeze(state[exp_avg_sq_col], state[exp_avg_sq_col].ndim() - 1);
    c_factor = pointwise(Op::rsqrt, {&columns}, DType::float32);
    estimate = mul(r_factor, c_factor);
    r_factor.reset();
    c_factor.reset();
    update_of_p_ = std::move(estimate);
    update_(Op::mul, {&update_of_p_, &grad_});
  }

  /// update.div_((self._rms(update) / clip_threshold).clamp_(min=1.0))
  void divide_by_rms() {
    Tensor root_mean_square = rms_of(update_of_p_);
    const Tensor ratio = div_scalar(root_mean_square);
    root_mean_square.reset();
    update_(Op::div, {&update_of_p_});
  }

  /// tensor.norm(2) / (tensor.numel() ** 0.5)
  static Tensor rms_of(const Tensor& x) {
    std::vector<int> dims;
    for (int i = 0; i < x.ndim(); ++i) dims.push_back(i);
    const Tensor norm = reduce(Op::linalg_vector_norm, x, dims, false, x.dtype());
    return div_scalar(norm);
  }

  void step() override {
    Optimizer::step();
    grad_.reset();
    p_data_fp32_.reset();
    lr_.reset();
    update_of_p_.reset();
  }

  // Names of `step`, which outlive the loops over groups and parameters: grad, p_data_fp32, lr, update.
  Tensor grad_, p_data_fp32_, lr_, update_of_p_;
};

}  // namespace

std::unique_ptr<Optimizer> make_hf_adafactor(Context& context, const OptimizerConfig& config) {
  return std::make_unique<HfAdafactor>(context, config);
}

}  // namespace oometer
