#include <algorithm>
#include <utility>

#include "ops/ops.h"
#include "train/optimizers/classes.h"
#include "train/optimizers/foreach.h"

namespace oometer {

namespace {

/// Axolotl's ADOPT (utils/optimizers/adopt.py): a first step only makes the second moment.
class Adopt final : public Optimizer {
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

  bool takes_first_step(const Group& group) {
    const auto number = static_cast<std::size_t>(&group - groups_.data());
    if (has_begun_.size() <= number) has_begun_.resize(number + 1, false);
    const bool is_first = !has_begun_[number];
    has_begun_[number] = true;
    return is_first;
  }

  void update(Group& group) override {
    const bool is_first = takes_first_step(group), copies = group.weight_decay != 0 && !is_decoupled();
    if (config_.implementation == OptimizerImplementation::for_loop) return single_tensor(group, is_first, copies);
    // _multi_tensor_adopt: names of the function, which a type's loop binds again
    std::vector<TensorLists> groups = group_tensors(group.parameters, group.states);
    TensorList device_grads, exp_avg_sq_sqrt, normed_grad;
    for (TensorLists& lists : groups) {
      device_grads = lists.grads;
      if (copies) device_grads = lists.foreach (Op::foreach_add, {&device_grads, &lists.params});
      if (is_first) {
        lists.foreach_(Op::foreach_addcmul, {&lists.states[exp_avg_sq], &device_grads});
        continue;
      }
      if (group.weight_decay != 0 && is_decoupled()) lists.foreach_(Op::foreach_add, {&lists.params});
      exp_avg_sq_sqrt = lists.foreach (Op::foreach_sqrt, {&lists.states[exp_avg_sq]});
      lists.foreach_(Op::foreach_maximum, {&exp_avg_sq_sqrt});
      normed_grad = lists.foreach (Op::foreach_div, {&device_grads, &exp_avg_sq_sqrt});
      lists.foreach_(Op::foreach_maximum, {&normed_grad});
      lists.foreach_(Op::foreach_lerp, {&lists.states[exp_avg], &normed_grad});
      lists.foreach_(Op::foreach_add, {&lists.params, &lists.states[exp_avg]});
      lists.foreach_(Op::foreach_mul, {&lists.states[exp_avg_sq]});
      lists.foreach_(Op::foreach_addcmul, {&lists.states[exp_avg_sq], &device_grads});
    }
  }

  void single_tensor(Group& group, bool is_first, bool copies) const {
    Tensor grad, denom, normed_grad;  // of _single_tensor_adopt
    for_each_tensor(group.parameters, group.states, [&](const Tensor& param, const Tensor& of_param, State& state) {
      grad = of_param;
      if (copies) grad = add(grad, param);
      if (is_first) return update_(Op::addcmul, {&state[exp_avg_sq], &grad});
      if (group.weight_decay != 0 && is_decoupled()) update_(Op::add, {&param});
      {
        const Tensor root = pointwise(Op::sqrt, {&state[exp_avg_sq]}, param.dtype());
        denom = pointwise(Op::clamp, {&root}, param.dtype());
      }
      normed_grad = div(grad, denom);
      update_(Op::clamp, {&normed_grad});
      update_(Op::lerp, {&state[exp_avg], &normed_grad});
      update_(Op::add, {&param, &state[exp_avg]});
      update_(Op::mul, {&state[exp_avg_sq]});
      update_(Op::addcmul, {&state[exp_avg_sq], &grad});
    });
  }

  bool is_decoupled() const { return config_.args.decoupled_weight_decay; }

  std::vector<char> has_begun_;
};

}  // namespace

std::unique_ptr<Optimizer> make_adopt(Context& context, const OptimizerConfig& config) {
  return std::make_unique<Adopt>(context, config);
}

}  // namespace oometer
