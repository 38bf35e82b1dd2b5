#include <utility>

#include "ops/ops.h"
#include "train/optimizers/classes.h"
#include "train/optimizers/foreach.h"

namespace oometer {

namespace {

/// torch.optim.Adagrad (PyTorch 2.15: torch/optim/adagrad.py): its constructor makes the states.
class Adagrad final : public Optimizer {
 public:
  using Optimizer::Optimizer;

  void add_group(std::vector<Parameter> parameters, bool decays) override {
    Optimizer::add_group(std::move(parameters), decays);
    Group& group = groups_.back();
    for (std::size_t i = 0; i < group.parameters.size(); ++i) {
      const ModuleScope scope(context_, group.parameters[i].module);
      group.states[i] = make_state(group.parameters[i]);
    }
  }

  /// The step counters move with the other states.
  void prepare() override {
    if (is_fused()) return;
    for (Group& group : groups_)
      for (State& state : group.states) state.push_back(scalar_state(Op::to_copy));
  }

 private:
  enum : std::size_t { sum, step };

  bool is_fused() const { return config_.implementation == OptimizerImplementation::fused; }

  State make_state(const Parameter& parameter) override {
    Tensor counter = is_fused() ? scalar_state() : Tensor();
    State state = {state_like(parameter.tensor, Op::full_like)};
    if (counter) state.push_back(std::move(counter));
    return state;
  }

  void update(Group& group) override {
    if (config_.implementation == OptimizerImplementation::for_loop) return single_tensor(group);
    if (is_fused()) return fused_(Op::fused_adagrad, group.parameters, 1, true);
    std::vector<TensorLists> groups = group_tensors(group.parameters, group.states);
    TensorList std, numerator;  // of _multi_tensor_adagrad
    for (TensorLists& lists : groups) {
      if (group.weight_decay != 0) lists.decay_grads();
      lists.foreach_(Op::foreach_addcmul, {&lists.states[sum], &lists.grads});
      std = lists.foreach (Op::foreach_sqrt, {&lists.states[sum]});
      lists.foreach_(Op::foreach_add, {&std});
      if (group.weight_decay != 0) {
        lists.foreach_(Op::foreach_mul, {&lists.grads});
        numerator = lists.grads;
      } else {
        numerator = lists.foreach (Op::foreach_mul, {&lists.grads});
      }
      lists.foreach_(Op::foreach_addcdiv, {&lists.params, &numerator, &std});
    }
    groups.clear();
    std.clear();
    numerator.clear();
  }

  void single_tensor(Group& group) const {
    Tensor grad, std;  // of _single_tensor_adagrad
    for_each_tensor(group.parameters, group.states, [&](const Tensor& param, const Tensor& of_param, State& state) {
      grad = of_param;
      if (group.weight_decay != 0) grad = add(grad, param);
      update_(Op::addcmul, {&state[sum], &grad});
      std = pointwise(Op::sqrt, {&state[sum]}, state[sum].dtype());
      update_(Op::add, {&std});
      update_(Op::addcdiv, {&param, &grad, &std});
    });
    grad.reset();
    std.reset();
  }
};

}  // namespace

std::unique_ptr<Optimizer> make_adagrad(Context& context, const OptimizerConfig& config) {
  return std::make_unique<Adagrad>(context, config);
}

}  // namespace oometer
