#include <utility>

#include "ops/ops.h"
#include "train/optimizers/classes.h"
#include "train/optimizers/foreach.h"

namespace oometer {

namespace {

/// torch.optim.Adadelta (PyTorch 2.15: torch/optim/adadelta.py).
class Adadelta final : public Optimizer {
 public:
  using Optimizer::Optimizer;

 private:
  enum : std::size_t { square_avg, acc_delta };

  State make_state(const Parameter& parameter) override {
    State state;
    state.push_back(state_like(parameter.tensor));
    state.push_back(state_like(parameter.tensor));
    return state;
  }

  void update(Group& group) override {
    if (config_.implementation == OptimizerImplementation::for_loop) return single_tensor(group);
    TensorList std, deltas;  // of _multi_tensor_adadelta
    std::vector<TensorLists> groups = group_tensors(group.parameters, group.states);
    for (TensorLists& lists : groups) {
      if (group.weight_decay != 0) lists.decay_grads();
      lists.foreach_(Op::foreach_mul, {&lists.states[square_avg]});
      lists.foreach_(Op::foreach_addcmul, {&lists.states[square_avg], &lists.grads});
      std = lists.foreach (Op::foreach_add, {&lists.states[square_avg]});
      lists.foreach_(Op::foreach_sqrt, {&std});
      deltas = lists.foreach (Op::foreach_add, {&lists.states[acc_delta]});
      lists.foreach_(Op::foreach_sqrt, {&deltas});
      lists.foreach_(Op::foreach_div, {&deltas, &std});
      lists.foreach_(Op::foreach_mul, {&deltas, &lists.grads});
      lists.foreach_(Op::foreach_mul, {&lists.states[acc_delta]});
      lists.foreach_(Op::foreach_addcmul, {&lists.states[acc_delta], &deltas});
      lists.foreach_(Op::foreach_add, {&lists.params, &deltas});
    }
    groups.clear();
    std.clear();
    deltas.clear();
  }

  void single_tensor(Group& group) const {
    Tensor grad, std, delta;  // of _single_tensor_adadelta
    for_each_tensor(group.parameters, group.states, [&](const Tensor& param, const Tensor& of_param, State& state) {
      grad = of_param;
      if (group.weight_decay != 0) grad = add(grad, param);
      update_(Op::mul, {&state[square_avg]});
      update_(Op::addcmul, {&state[square_avg], &grad});
      std = add_scalar(state[square_avg]);
      update_(Op::sqrt, {&std});
      delta = add_scalar(state[acc_delta]);
      update_(Op::sqrt, {&delta});
      update_(Op::div, {&delta, &std});
      update_(Op::mul, {&delta, &grad});
      update_(Op::mul, {&state[acc_delta]});
      update_(Op::addcmul, {&state[acc_delta], &delta});
      update_(Op::add, {&param, &delta});
    });
    grad.reset();
    std.reset();
    delta.reset();
  }
};

}  // namespace

std::unique_ptr<Optimizer> make_adadelta(Context& context, const OptimizerConfig& config) {
  return std::make_unique<Adadelta>(context, config);
}

}  // namespace oometer
