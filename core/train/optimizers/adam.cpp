#include <utility>

#include "ops/ops.h"
#include "train/optimizers/classes.h"
#include "train/optimizers/foreach.h"

namespace oometer {

namespace {

/// torch.optim.Adam and AdamW (PyTorch 2.15: torch/optim/adam.py), and DeepSpeed's FusedAdam (0.19.8:
/// ops/adam/fused_adam.py).
class Adam final : public Optimizer {
 public:
  Adam(Context& context, const OptimizerConfig& config) : Optimizer(context, config) {
    if (config.implementation == OptimizerImplementation::deepspeed_fused)
      overflow_buf_ = empty(context, Op::to_copy, {1}, DType::int32, Role::optimizer_state);
  }

 private:
  enum : std::size_t { exp_avg, exp_avg_sq, max_exp_avg_sq };

  bool is_fused() const { return config_.implementation == OptimizerImplementation::fused; }
  bool is_decoupled() const { return config_.name == OptimizerName::adamw || config_.args.decoupled_weight_decay; }

  State make_state(const Parameter& parameter) override {
    State state;
    // A step counter on the device only for the fused (or capturable) kernel.
    Tensor counter = is_fused() ? scalar_state() : Tensor();
    state.push_back(state_like(parameter.tensor));
    state.push_back(state_like(parameter.tensor));
    if (config_.args.amsgrad) state.push_back(state_like(parameter.tensor));
    if (counter) state.push_back(std::move(counter));
    return state;
  }

  void update(Group& group) override {
    if (config_.implementation == OptimizerImplementation::for_loop) return single_tensor(group);
    if (config_.implementation != OptimizerImplementation::foreach_)
      return fused_(Op::fused_adam, group.parameters, config_.args.amsgrad ? 3 : 2, is_fused());
    std::vector<TensorLists> groups = group_tensors(group.parameters, group.states);
    multi_tensor(groups, group.weight_decay);
  }

  // _multi_tensor_adam: a type's exp_avg_sq_sqrt is bound until the next one's is there.
  void multi_tensor(std::vector<TensorLists>& groups, double weight_decay) const {
    TensorList exp_avg_sq_sqrt;
    for (TensorLists& lists : groups) {
      if (is_decoupled())
        lists.foreach_(Op::foreach_mul, {&lists.params});
      else if (weight_decay != 0)
        lists.decay_grads();
      lists.foreach_(Op::foreach_lerp, {&lists.states[exp_avg], &lists.grads});
      lists.foreach_(Op::foreach_mul, {&lists.states[exp_avg_sq]});
      lists.foreach_(Op::foreach_addcmul, {&lists.states[exp_avg_sq], &lists.grads});
      lists.grads.clear();
      const TensorList* squares = &lists.states[exp_avg_sq];
      if (config_.args.amsgrad) {
        squares = &lists.states[max_exp_avg_sq];
        lists.foreach_(Op::foreach_maximum, {squares, &lists.states[exp_avg_sq]});
      }
      exp_avg_sq_sqrt = lists.foreach (Op::foreach_sqrt, {squares});
      lists.foreach_(Op::foreach_div, {&exp_avg_sq_sqrt});
      lists.foreach_(Op::foreach_add, {&exp_avg_sq_sqrt});
      lists.foreach_(Op::foreach_addcdiv, {&lists.params, &lists.states[exp_avg], &exp_avg_sq_sqrt});
    }
  }

  // _single_tensor_adam: names stay bound while those of the next parameter are made.
  void single_tensor(Group& group) const {
    Tensor grad, denom;
    for_each_tensor(group.parameters, group.states, [&](const Tensor& param, const Tensor& of_param, State& state) {
      grad = of_param;
      if (is_decoupled())
        update_(Op::mul, {&param});
      else if (group.weight_decay != 0)
        grad = add(grad, param);
      update_(Op::lerp, {&state[exp_avg], &grad});
      update_(Op::mul, {&state[exp_avg_sq]});
      update_(Op::addcmul, {&state[exp_avg_sq], &grad});
      const Tensor* squares = &state[exp_avg_sq];
      if (config_.args.amsgrad) {
        squares = &state[max_exp_avg_sq];
        update_(Op::maximum, {squares, &state[exp_avg_sq]});
      }
      Tensor root = pointwise(Op::sqrt, {squares}, squares->dtype());
      Tensor quotient = div_scalar(root);
      root.reset();
      denom = std::move(quotient);
      update_(Op::add, {&denom});
      update_(Op::addcdiv, {&param, &state[exp_avg], &denom});
    });
    grad.reset();
    denom.reset();
  }

  Tensor overflow_buf_;  ///< FusedAdam's _dummy_overflow_buf
};

}  // namespace

std::unique_ptr<Optimizer> make_adam(Context& context, const OptimizerConfig& config) {
  return std::make_unique<Adam>(context, config);
}

}  // namespace oometer
