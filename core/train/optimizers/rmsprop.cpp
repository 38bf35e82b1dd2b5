#include <utility>

#include "ops/ops.h"
#include "train/optimizers/classes.h"
#include "train/optimizers/foreach.h"

namespace oometer {

namespace {

/// torch.optim.RMSprop (PyTorch 2.15: torch/optim/rmsprop.py).
class RmsProp final : public Optimizer {
 public:
  using Optimizer::Optimizer;

 private:
  // square_avg, then momentum_buffer, then grad_avg, of which there may be none
  bool has_momentum() const { return config_.momentum > 0; }
  std::size_t grad_avg() const { return has_momentum() ? 2 : 1; }

  State make_state(const Parameter& parameter) override {
    State state;
    state.push_back(state_like(parameter.tensor));
    if (has_momentum()) state.push_back(state_like(parameter.tensor));
    if (config_.args.centered) state.push_back(state_like(parameter.tensor));
    return state;
  }

  void update(Group& group) override {
    if (config_.implementation == OptimizerImplementation::for_loop) return single_tensor(group);
    std::vector<TensorLists> groups = group_tensors(group.parameters, group.states);
    TensorList avg;  // of _multi_tensor_rmsprop
    for (TensorLists& lists : groups) {
      const TensorList& square_avgs = lists.states[0];
      if (group.weight_decay != 0) lists.decay_grads();
      lists.foreach_(Op::foreach_mul, {&square_avgs});
      lists.foreach_(Op::foreach_addcmul, {&square_avgs, &lists.grads});
      if (config_.args.centered) {
        const TensorList& grad_avgs = lists.states[grad_avg()];
        lists.foreach_(Op::foreach_lerp, {&grad_avgs, &lists.grads});
        avg = lists.foreach (Op::foreach_addcmul, {&square_avgs, &grad_avgs});
        lists.foreach_(Op::foreach_sqrt, {&avg});
      } else {
        avg = lists.foreach (Op::foreach_sqrt, {&square_avgs});
      }
      lists.foreach_(Op::foreach_add, {&avg});
      if (has_momentum()) {
        const TensorList& bufs = lists.states[1];
        lists.foreach_(Op::foreach_mul, {&bufs});
        lists.foreach_(Op::foreach_addcdiv, {&bufs, &lists.grads, &avg});
        lists.foreach_(Op::foreach_add, {&lists.params, &bufs});
      } else {
        lists.foreach_(Op::foreach_addcdiv, {&lists.params, &lists.grads, &avg});
      }
    }
    groups.clear();
    avg.clear();
  }

  void single_tensor(Group& group) const {
    Tensor grad, avg;  // of _single_tensor_rmsprop
    for_each_tensor(group.parameters, group.states, [&](const Tensor& param, const Tensor& of_param, State& state) {
      grad = of_param;
      if (group.weight_decay != 0) grad = add(grad, param);
      update_(Op::mul, {&state[0]});
      update_(Op::addcmul, {&state[0], &grad});
      if (config_.args.centered) {
        update_(Op::lerp, {&state[grad_avg()], &grad});
        avg = pointwise(Op::addcmul, {&state[0], &state[grad_avg()]}, state[0].dtype());
        update_(Op::sqrt, {&avg});
      } else {
        avg = pointwise(Op::sqrt, {&state[0]}, state[0].dtype());
      }
      update_(Op::add, {&avg});
      if (has_momentum()) {
        update_(Op::mul, {&state[1]});
        update_(Op::addcdiv, {&state[1], &grad, &avg});
        update_(Op::add, {&param, &state[1]});
      } else {
        update_(Op::addcdiv, {&param, &grad, &avg});
      }
    });
    grad.reset();
    avg.reset();
  }
};

}  // namespace

std::unique_ptr<Optimizer> make_rmsprop(Context& context, const OptimizerConfig& config) {
  return std::make_unique<RmsProp>(context, config);
}

}  // namespace oometer
