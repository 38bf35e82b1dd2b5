#include <utility>

#include "train/optimizers/classes.h"
#include "train/optimizers/foreach.h"

namespace oometer {

namespace {

/// optimi.StableAdamW (torch-optimi 0.3.3: stableadamw.py) with its Triton kernels, which it takes on a GPU: no
/// temporaries. Weights in half precision have a compensation of Kahan's summation.
class StableAdamW final : public Optimizer {
 public:
  using Optimizer::Optimizer;

 private:
  // exp_avg, exp_avg_sq, eps_sq, kahan_comp, mean_square
  State make_state(const Parameter& parameter) override {
    const Tensor& param = parameter.tensor;
    State state;
    state.push_back(state_like(param));
    state.push_back(state_like(param));
    state.push_back(scalar_state(Op::to_copy, param.dtype()));
    const bool is_half = param.dtype() == DType::float16 || param.dtype() == DType::bfloat16;
    if (is_half && config_.args.kahan_sum)
      state.push_back(state_like(param));
    else
      state.push_back(empty(context_, Op::zeros, {1}, DType::uint8, Role::optimizer_state));
    state.push_back(empty(context_, Op::zeros, {1}, DType::float32, Role::optimizer_state));
    return state;
  }

  // _triton_stableadamw: _stableadamw_exp_avg_kernel and _stableadamw_update_kernel
  void update(Group& group) override {
    for_each_tensor(group.parameters, group.states, [](const Tensor& param, const Tensor& grad, State& state) {
      update_(Op::lerp, {&state[0], &grad});
      update_(Op::addcmul, {&state[1], &grad});
      update_(Op::addcdiv, {&param, &state[0], &state[1], &state[3]});
    });
  }
};

}  // namespace

std::unique_ptr<Optimizer> make_stable_adamw(Context& context, const OptimizerConfig& config) {
  return std::make_unique<StableAdamW>(context, config);
}

}  // namespace oometer
