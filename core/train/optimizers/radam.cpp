#include "train/optimizers/classes.h"
#include "train/optimizers/foreach.h"

namespace oometer {

namespace {

/// torch.optim.RAdam, foreach (PyTorch 2.15: torch/optim/radam.py). From the sixth step on it is rectified, with the
/// same tensors; the for-loop has others then, and is not here.
class RAdam final : public Optimizer {
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

  // _multi_tensor_radam
  void update(Group& group) override {
    TensorList buffer;
    std::vector<TensorLists> groups = group_tensors(group.parameters, group.states);
    for (TensorLists& lists : groups) {
      if (config_.args.decoupled_weight_decay)
        lists.foreach_(Op::foreach_mul, {&lists.params});
      else if (group.weight_decay != 0)
        lists.decay_grads();
      lists.foreach_(Op::foreach_lerp, {&lists.states[exp_avg], &lists.grads});
      lists.foreach_(Op::foreach_mul, {&lists.states[exp_avg_sq]});
      lists.foreach_(Op::foreach_addcmul, {&lists.states[exp_avg_sq], &lists.grads});
      lists.grads.clear();
      buffer = lists.foreach (Op::foreach_sqrt, {&lists.states[exp_avg_sq]});
      lists.foreach_(Op::foreach_add, {&buffer});
      lists.foreach_(Op::foreach_div, {&buffer});
      lists.foreach_(Op::foreach_reciprocal, {&buffer});
      lists.foreach_(Op::foreach_add, {&buffer});
      lists.foreach_(Op::foreach_addcmul, {&lists.params, &lists.states[exp_avg], &buffer});
    }
  }
};

}  // namespace

std::unique_ptr<Optimizer> make_radam(Context& context, const OptimizerConfig& config) {
  return std::make_unique<RAdam>(context, config);
}

}  // namespace oometer
