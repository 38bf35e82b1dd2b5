#include <utility>

#include "ops/ops.h"
#include "train/optimizers/classes.h"
#include "train/optimizers/foreach.h"

namespace oometer {

namespace {

/// torch.optim.NAdam (PyTorch 2.15: torch/optim/nadam.py). mu_product, like the step counter, is on the host.
class NAdam final : public Optimizer {
 public:
  using Optimizer::Optimizer;

 private:
  enum : std::size_t { exp_avg, exp_avg_sq };

  State make_state(const Parameter& parameter) override {
    State state;
    state.push_back(state_like(parameter.tensor));
    state.push_back(state_like(parameter.tensor));
    return state;
  }

  void update(Group& group) override {
    if (config_.implementation == OptimizerImplementation::for_loop) return single_tensor(group);
    std::vector<TensorLists> groups = group_tensors(group.parameters, group.states);
    TensorList exp_avg_sq_sqrt;  // of _multi_tensor_nadam
    for (TensorLists& lists : groups) {
      if (config_.args.decoupled_weight_decay)
        lists.foreach_(Op::foreach_mul, {&lists.params});
      else if (group.weight_decay != 0)
        lists.decay_grads();
      lists.foreach_(Op::foreach_lerp, {&lists.states[exp_avg], &lists.grads});
      lists.foreach_(Op::foreach_mul, {&lists.states[exp_avg_sq]});
      lists.foreach_(Op::foreach_addcmul, {&lists.states[exp_avg_sq], &lists.grads});
      exp_avg_sq_sqrt = lists.foreach (Op::foreach_sqrt, {&lists.states[exp_avg_sq]});
      lists.foreach_(Op::foreach_div, {&exp_avg_sq_sqrt});
      lists.foreach_(Op::foreach_add, {&exp_avg_sq_sqrt});
      lists.foreach_(Op::foreach_addcdiv, {&lists.params, &lists.grads, &exp_avg_sq_sqrt});
      lists.foreach_(Op::foreach_addcdiv, {&lists.params, &lists.states[exp_avg], &exp_avg_sq_sqrt});
    }
    groups.clear();
    exp_avg_sq_sqrt.clear();
  }

  void single_tensor(Group& group) const {
    Tensor grad, denom;  // of _single_tensor_nadam
    for_each_tensor(group.parameters, group.states, [&](const Tensor& param, const Tensor& of_param, State& state) {
      grad = of_param;
      if (config_.args.decoupled_weight_decay)
        update_(Op::mul, {&param});
      else if (group.weight_decay != 0)
        grad = add(grad, param);
      update_(Op::lerp, {&state[exp_avg], &grad});
      update_(Op::mul, {&state[exp_avg_sq]});
      update_(Op::addcmul, {&state[exp_avg_sq], &grad});
      Tensor corrected = div_scalar(state[exp_avg_sq]);
      Tensor root = pointwise(Op::sqrt, {&corrected}, corrected.dtype());
      corrected.reset();
      denom = std::move(root);
      update_(Op::add, {&denom});
      update_(Op::addcdiv, {&param, &grad, &denom});
      update_(Op::addcdiv, {&param, &state[exp_avg], &denom});
    });
    grad.reset();
    denom.reset();
  }
};

}  // namespace

std::unique_ptr<Optimizer> make_nadam(Context& context, const OptimizerConfig& config) {
  return std::make_unique<NAdam>(context, config);
}

}  // namespace oometer
