#include "ops/ops.h"
#include "train/optimizers/classes.h"
#include "train/optimizers/foreach.h"

namespace oometer {

namespace {

/// optimi.Adam, AdamW and Lion (torch-optimi 0.3.3: adam.py, lion.py). Weights in half precision have a compensation of
/// Kahan's summation. Their Triton kernels, which a GPU gets unless foreach is given, make no temporaries, nor does
/// foreach, which writes over the gradients.
class Optimi final : public Optimizer {
 public:
  using Optimizer::Optimizer;

 private:
  bool is_lion() const { return config_.name == OptimizerName::optimi_lion; }
  bool has_kahan_sum(const Tensor& param) const {
    return config_.args.kahan_sum && (param.dtype() == DType::float16 || param.dtype() == DType::bfloat16);
  }

  // exp_avg, exp_avg_sq, kahan_comp
  State make_state(const Parameter& parameter) override {
    const Tensor& param = parameter.tensor;
    State state;
    state.push_back(state_like(param));
    if (!is_lion()) state.push_back(state_like(param));
    if (has_kahan_sum(param)) state.push_back(state_like(param));
    return state;
  }

  // _single_param_adam, _single_param_lion
  void update(Group& group) override {
    const bool has_temporaries = config_.implementation == OptimizerImplementation::for_loop;
    for_each_tensor(group.parameters, group.states, [&](const Tensor& param, const Tensor& grad, State& state) {
      const Tensor& exp_avg = state[0];
      if (group.weight_decay != 0) update_(Op::mul, {&param});
      Tensor change;
      if (is_lion() && has_temporaries) change = pointwise(Op::lerp, {&exp_avg, &grad}, exp_avg.dtype());
      update_(Op::lerp, {&exp_avg, &grad});
      if (!is_lion()) update_(Op::addcmul, {&state[1], &grad});
      if (!is_lion() && has_temporaries) change = pointwise(Op::sqrt, {&state[1]}, state[1].dtype());
      const Tensor& changed = has_kahan_sum(param) ? state[state.size() - 1] : param;
      update_(Op::addcdiv, {&changed, &exp_avg});
      if (!is_lion()) change.reset();
      if (has_kahan_sum(param)) update_(Op::add, {&param, &changed, &grad});
    });
  }
};

}  // namespace

std::unique_ptr<Optimizer> make_optimi(Context& context, const OptimizerConfig& config) {
  return std::make_unique<Optimi>(context, config);
}

}  // namespace oometer
