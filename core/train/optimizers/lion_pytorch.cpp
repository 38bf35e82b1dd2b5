#include "ops/ops.h"
#include "train/optimizers/classes.h"
#include "train/optimizers/foreach.h"

namespace oometer {

namespace {

/// lion_pytorch.Lion (0.2.5: lion_pytorch.py) without Triton.
class LionPytorch final : public Optimizer {
 public:
  using Optimizer::Optimizer;

 private:
  State make_state(const Parameter& parameter) override { return {state_like(parameter.tensor)}; }

  // update_fn
  void update(Group& group) override {
    for_each_tensor(group.parameters, group.states, [](const Tensor& p, const Tensor& grad, State& state) {
      const Tensor& exp_avg = state[0];
      update_(Op::mul, {&p});
      Tensor change = clone(exp_avg);
      update_(Op::mul, {&change});
      change = add(change, grad);
      update_(Op::sign, {&change});
      update_(Op::add, {&p, &change});
      update_(Op::mul, {&exp_avg});
      update_(Op::add, {&exp_avg, &grad});
    });
  }
};

}  // namespace

std::unique_ptr<Optimizer> make_lion_pytorch(Context& context, const OptimizerConfig& config) {
  return std::make_unique<LionPytorch>(context, config);
}

}  // namespace oometer
