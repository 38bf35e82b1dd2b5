#include <utility>

#include "ops/ops.h"
#include "train/optimizers/classes.h"
#include "train/optimizers/factored.h"
#include "train/optimizers/foreach.h"
#include "train/optimizers/in_backward.h"

namespace oometer {

namespace {

/// lomo_optim (0.1.1: lomo.py): a hook of each weight's gradient updates the weights that have got theirs before; the
/// last one changes when backward is over. The hook runs before AccumulateGrad, which allocates nothing where it takes
/// the gradient as its own.
class Lomo : public InBackward {
 public:
  using InBackward::InBackward;

  void gradient_ready(const Tensor& parameter) override {
    if (Parameter* const last = std::exchange(last_, find(parameter)); last && last != last_) update_one(*last);
  }

  // fused_backward
  void backward(const Tensor& loss) override {
    InBackward::backward(loss);
    const NoGrad no_grad(context_);
    if (last_) update_one(*std::exchange(last_, nullptr));
  }

 protected:
  virtual void update_one(Parameter& parameter) {
    const ModuleScope scope(context_, parameter.module);
    const Tensor& p = parameter.tensor;
    const Tensor grad_fp32 = take_gradient(p);
    const Tensor p_fp32 = as_float(p);
    update_(Op::add, {&p_fp32, &grad_fp32});
    update_(Op::copy, {&p, &p_fp32});
  }

  static Tensor as_float(const Tensor& x) {
    return x.dtype() == DType::float32 ? x : empty_like(Op::to_copy, x, DType::float32);
  }
  /// grad_fp32 = p.grad.to(torch.float32); p.grad = None
  static Tensor take_gradient(const Tensor& p) {
    Tensor grad_fp32 = as_float(p->grad);
    p->grad.reset();
    return grad_fp32;
  }

 private:
  Parameter* find(const Tensor& tensor) {
    for (Group& group : groups_)
      for (Parameter& parameter : group.parameters)
        if (parameter.tensor.get() == tensor.get()) return &parameter;
    return nullptr;
  }

  Parameter* last_ = nullptr;  ///< has a gradient
};

/// adalomo.py: with Adafactor's second moments, which are there from the start.
class AdaLomo final : public Lomo {
 public:
  using Lomo::Lomo;

  void add_group(std::vector<Parameter> parameters, bool decays) override {
    Lomo::add_group(std::move(parameters), decays);
    for (std::size_t i = 0; i < groups_.back().parameters.size(); ++i) {
      const Parameter& parameter = groups_.back().parameters[i];
      const ModuleScope scope(context_, parameter.module);
      State& state = groups_.back().states[i];
      state.push_back(zeros(parameter.tensor.size(0)));
      if (parameter.tensor.ndim() > 1) state.push_back(zeros(parameter.tensor.size(1)));
    }
  }

  void backward(const Tensor& loss) override {
    const Tensor scaled = mul_scalar(loss);
    Lomo::backward(scaled);
  }

 private:
  Tensor zeros(std::int64_t size) const {
    return empty(context_, Op::to_copy, {size}, DType::float32, Role::optimizer_state);
  }

  State& state_of(const Parameter& parameter) {
    for (Group& group : groups_)
      for (std::size_t i = 0; i < group.parameters.size(); ++i)
        if (&group.parameters[i] == &parameter) return group.states[i];
    return groups_.front().states.front();
  }

  void update_one(Parameter& parameter) override {
    const ModuleScope scope(context_, parameter.module);
    const Tensor& p = parameter.tensor;
    const State& state = state_of(parameter);
    const Tensor grad_fp32 = take_gradient(p);
    Tensor update;
    {
      const Tensor square = pow(grad_fp32, 2);
      update = add_scalar(square);
    }
    if (p.ndim() > 1) {
      for (const int dim : {-1, -2}) {
        const Tensor means = mean(update, dim, false);
        update_(Op::add, {&state[dim == -1 ? 0 : 1], &means});
      }
      Tensor estimate = approx_sq_grad(state[0], state[1]);
      update = std::move(estimate);
    } else {
      update_(Op::add, {&state[0], &update});
      Tensor root = pointwise(Op::rsqrt, {&state[0]}, DType::float32);
      update_(Op::mul, {&root, &grad_fp32});
      update = std::move(root);
    }
    if (p.ndim() > 1) update_(Op::mul, {&update, &grad_fp32});
    divide_by_rms(update);
    const Tensor p_fp32 = as_float(p);
    const Tensor p_rms = rms_of(p_fp32);
    { const Tensor is_larger = pointwise(Op::gt, {&p_rms}, DType::boolean); }
    const Tensor lr = mul_scalar(p_rms);
    { const Tensor alpha = pointwise(Op::neg, {&lr}, DType::float32); }
    update_(Op::add, {&p_fp32, &update});
    update_(Op::copy, {&p, &p_fp32});
  }
};

}  // namespace

std::unique_ptr<Optimizer> make_lomo(Context& context, const OptimizerConfig& config) {
  if (config.name == OptimizerName::adalomo) return std::make_unique<AdaLomo>(context, config);
  return std::make_unique<Lomo>(context, config);
}

}  // namespace oometer
