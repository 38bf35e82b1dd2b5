#include <utility>

#include "ops/ops.h"
#include "train/optimizers/classes.h"
#include "train/optimizers/foreach.h"

namespace oometer {

namespace {

/// torch.optim.SGD (PyTorch 2.15: torch/optim/sgd.py). Its momentum buffers are the first step's gradients.
class Sgd final : public Optimizer {
 public:
  using Optimizer::Optimizer;

 private:
  bool has_momentum() const { return config_.momentum != 0; }

  State make_state(const Parameter&) override { return {}; }

  void update(Group& group) override {
    if (config_.implementation == OptimizerImplementation::for_loop) return single_tensor(group);
    const bool is_fused = config_.implementation == OptimizerImplementation::fused;
    std::vector<TensorLists> groups = group_tensors(group.parameters, group.states);
    for (TensorLists& lists : groups) {
      if (!is_fused && group.weight_decay != 0) lists.decay_grads();
      if (has_momentum()) add_momentum(group, lists);
      if (!is_fused) lists.foreach_(Op::foreach_add, {&lists.params, &lists.grads});
    }
    if (is_fused) fused_(Op::fused_sgd, group.parameters, has_momentum() ? 1 : 0, false);
  }

  void add_momentum(Group& group, TensorLists& lists) const {
    const bool is_fused = config_.implementation == OptimizerImplementation::fused;
    bool are_there = true;
    TensorList bufs;
    for (std::size_t i = 0; i < lists.grads.size(); ++i) {
      State& state = group.states[lists.indices[i]];
      if (state.empty()) {
        const ModuleScope scope(context_, lists.modules[i]);
        state.push_back(state_like(lists.grads[i], is_fused ? Op::empty : Op::clone));
        are_there = false;
      }
      bufs.push_back(state[0]);
    }
    if (!is_fused) {
      if (are_there) {
        lists.foreach_(Op::foreach_mul, {&bufs});
        lists.foreach_(Op::foreach_add, {&bufs, &lists.grads});
      }
      if (config_.args.nesterov)
        lists.foreach_(Op::foreach_add, {&lists.grads, &bufs});
      else
        lists.grads = bufs;
    }
    lists.states = {std::move(bufs)};
  }

  // _single_tensor_sgd
  void single_tensor(Group& group) const {
    Tensor grad;
    for_each_tensor(group.parameters, group.states, [&](const Tensor& param, const Tensor& of_param, State& state) {
      grad = of_param;
      if (group.weight_decay != 0) grad = add(grad, param);
      if (has_momentum()) {
        if (state.empty()) {
          state.push_back(state_like(grad, Op::clone));
        } else {
          update_(Op::mul, {&state[0]});
          update_(Op::add, {&state[0], &grad});
        }
        grad = config_.args.nesterov ? add(grad, state[0]) : state[0];
      }
      update_(Op::add, {&param, &grad});
    });
  }
};

}  // namespace

std::unique_ptr<Optimizer> make_sgd(Context& context, const OptimizerConfig& config) {
  return std::make_unique<Sgd>(context, config);
}

}  // namespace oometer
