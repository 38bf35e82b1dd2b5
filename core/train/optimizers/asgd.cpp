#include <utility>

#include "ops/ops.h"
#include "train/optimizers/classes.h"
#include "train/optimizers/foreach.h"

namespace oometer {

namespace {

/// torch.optim.ASGD (PyTorch 2.15: torch/optim/asgd.py): its scalars are tensors on the device, one set a parameter.
class Asgd final : public Optimizer {
 public:
  using Optimizer::Optimizer;

 private:
  enum : std::size_t { ax, mu, eta, step };

  State make_state(const Parameter& parameter) override {
    Tensor counter = scalar_state(), made = scalar_state(Op::to_copy);
    Tensor of_eta = scalar_state(Op::clone);
    made.reset();
    Tensor of_mu = scalar_state(Op::fill);
    return {state_like(parameter.tensor), of_mu, of_eta, counter};
  }

  void update(Group& group) override {
    if (config_.implementation == OptimizerImplementation::for_loop) return single_tensor(group);
    TensorList intermediate, new_etas, new_mus;  // of _multi_tensor_asgd
    std::vector<TensorLists> groups = group_tensors(group.parameters, group.states);
    for (TensorLists& lists : groups) {
      if (group.weight_decay != 0) {
        intermediate = lists.foreach (Op::foreach_add, {&lists.grads, &lists.params});
        lists.foreach_(Op::foreach_add, {&intermediate, &lists.params});
      } else {
        intermediate = lists.foreach (Op::foreach_add, {&lists.grads, &lists.params});
      }
      lists.foreach_(Op::foreach_addcmul, {&lists.params, &intermediate});
      intermediate.clear();
      intermediate = lists.foreach (Op::foreach_sub, {&lists.params, &lists.states[ax]});
      lists.foreach_(Op::foreach_addcmul, {&lists.states[ax], &intermediate});
      intermediate.clear();
      TensorList etas, mus;
      for (const Tensor& of_step : lists.states[step]) etas.push_back(new_eta(of_step));
      new_etas = std::move(etas);
      for (std::size_t i = 0; i < lists.params.size(); ++i)
        mus.push_back(empty(context_, Op::to_copy, {}, DType::float32));
      new_mus = std::move(mus);
    }
    new_etas.clear();
    new_mus.clear();
  }

  /// lr / ((1 + lambd * lr * step) ** alpha), of tensors
  static Tensor new_eta(const Tensor& of_step) {
    Tensor x = mul_scalar(of_step);
    x = add_scalar(x);
    x = pointwise(Op::pow, {&x}, DType::float32);
    x = pointwise(Op::reciprocal, {&x}, DType::float32);
    return mul_scalar(x);
  }

  void single_tensor(Group& group) const {
    Tensor grad;  // of _single_tensor_asgd, before step t0, of a million
    for_each_tensor(group.parameters, group.states, [&](const Tensor& param, const Tensor& of_param, State& state) {
      grad = of_param;
      if (group.weight_decay != 0) grad = add(grad, param);
      update_(Op::mul, {&param});
      update_(Op::add, {&param, &grad});
      update_(Op::copy, {&state[ax], &param});
    });
  }
};

}  // namespace

std::unique_ptr<Optimizer> make_asgd(Context& context, const OptimizerConfig& config) {
  return std::make_unique<Asgd>(context, config);
}

}  // namespace oometer
