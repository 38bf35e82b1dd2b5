#include <utility>

#include "ops/ops.h"
#include "train/optimizers/classes.h"
#include "train/optimizers/foreach.h"

namespace oometer {

namespace {

/// DeepSpeed's FusedLion (0.19.8: ops/lion/fused_lion.py): one kernel, which makes nothing.
class FusedLion final : public Optimizer {
 public:
  FusedLion(Context& context, const OptimizerConfig& config) : Optimizer(context, config) {
    dummy_overflow_buf_ = empty(context, Op::to_copy, {1}, DType::int32, Role::optimizer_state);
  }

 private:
  State make_state(const Parameter& parameter) override { return {state_like(parameter.tensor)}; }
  void update(Group& group) override { fused_(Op::fused_adam, group.parameters, 1, false); }

  Tensor dummy_overflow_buf_;
};

/// DeepSpeed's FusedLamb (0.19.8: ops/lamb/fused_lamb.py, csrc/lamb/fused_lamb_cuda.cpp): one weight after another,
/// whose coefficients stay until the next step.
class FusedLamb final : public Optimizer {
 public:
  using Optimizer::Optimizer;

  void step() override {
    lamb_coeffs_.clear();
    takes_all_ = true;
    Optimizer::step();
    takes_all_ = false;
  }

 private:
  State make_state(const Parameter& parameter) override {
    if (!takes_all_) lamb_coeffs_.clear();
    State state;
    for (int moment = 0; moment < 2; ++moment) state.push_back(state_like(parameter.tensor));
    return state;
  }

  void update(Group& group) override {
    if (!takes_all_) lamb_coeffs_.clear();
    for_each_tensor(group.parameters, group.states, [&](const Tensor& p, const Tensor& grad, State& state) {
      const DType dtype = p.dtype() == DType::float16 ? DType::float32 : p.dtype();
      const Tensor w_l2_i = empty(context_, Op::empty, {512}, dtype);
      const Tensor u_l2_i = empty(context_, Op::empty, {512}, dtype);
      Tensor coeff = empty(context_, Op::empty, {1}, dtype);
      update_(Op::fused_adam, {&p, &grad, &state[0], &state[1]});
      lamb_coeffs_.push_back(std::move(coeff));
    });
  }

  bool takes_all_ = false;  ///< a step is of all groups, not of one
  TensorList lamb_coeffs_;
};

}  // namespace

std::unique_ptr<Optimizer> make_deepspeed(Context& context, const OptimizerConfig& config) {
  if (config.name == OptimizerName::deepspeed_lion) return std::make_unique<FusedLion>(context, config);
  return std::make_unique<FusedLamb>(context, config);
}

}  // namespace oometer
