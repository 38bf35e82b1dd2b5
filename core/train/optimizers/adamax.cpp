#include <utility>

#include "ops/ops.h"
#include "train/optimizers/classes.h"
#include "train/optimizers/foreach.h"

namespace oometer {

namespace {

/// torch.optim.Adamax (PyTorch 2.15: torch/optim/adamax.py).
class Adamax final : public Optimizer {
 public:
  using Optimizer::Optimizer;

 private:
  enum : std::size_t { exp_avg, exp_inf };

  State make_state(const Parameter& parameter) override {
    State state;
    state.push_back(state_like(parameter.tensor));
    state.push_back(state_like(parameter.tensor));
    return state;
  }

  void update(Group& group) override {
    if (config_.implementation == OptimizerImplementation::for_loop) return single_tensor(group);
    // _multi_tensor_adamax: a type's grouped_grads are its own copies, bound until the function returns.
    std::vector<TensorLists> groups = group_tensors(group.parameters, group.states);
    TensorList grouped_grads;
    for (TensorLists& lists : groups) {
      grouped_grads = lists.grads;
      if (group.weight_decay != 0) grouped_grads = lists.foreach (Op::foreach_add, {&grouped_grads, &lists.params});
      lists.foreach_(Op::foreach_lerp, {&lists.states[exp_avg], &grouped_grads});
      lists.foreach_(Op::foreach_mul, {&lists.states[exp_inf]});
      if (group.weight_decay == 0)
        grouped_grads = lists.foreach (Op::foreach_abs, {&grouped_grads});
      else
        lists.foreach_(Op::foreach_abs, {&grouped_grads});
      lists.foreach_(Op::foreach_add, {&grouped_grads});
      lists.foreach_(Op::foreach_maximum, {&lists.states[exp_inf], &grouped_grads});
      lists.foreach_(Op::foreach_addcdiv, {&lists.params, &lists.states[exp_avg], &lists.states[exp_inf]});
    }
  }

  void single_tensor(Group& group) const {
    Tensor grad;  // of _single_tensor_adamax
    for_each_tensor(group.parameters, group.states, [&](const Tensor& param, const Tensor& of_param, State& state) {
      grad = of_param;
      if (group.weight_decay != 0) grad = add(grad, param);
      update_(Op::lerp, {&state[exp_avg], &grad});
      update_(Op::mul, {&state[exp_inf]});
      {
        const Tensor magnitude = pointwise(Op::abs, {&grad}, grad.dtype());
        update_(Op::add, {&magnitude});
        update_(Op::maximum, {&state[exp_inf], &magnitude});
      }
      update_(Op::addcdiv, {&param, &state[exp_avg], &state[exp_inf]});
    });
  }
};

}  // namespace

std::unique_ptr<Optimizer> make_adamax(Context& context, const OptimizerConfig& config) {
  return std::make_unique<Adamax>(context, config);
}

}  // namespace oometer
