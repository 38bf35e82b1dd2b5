#include "ops/ops.h"
#include "train/optimizers/classes.h"
#include "train/optimizers/foreach.h"

namespace oometer {

namespace {

/// Transformer Engine's FusedAdam (2.20: pytorch/optimizers/fused_adam.py): its kernel takes all weights at once and
/// makes nothing.
class TransformerEngineFusedAdam final : public Optimizer {
 public:
  TransformerEngineFusedAdam(Context& context, const OptimizerConfig& config) : Optimizer(context, config) {
    dummy_overflow_buf_ = empty(context, Op::to_copy, {1}, DType::int32, Role::optimizer_state);
  }

 private:
  // initialize_state: exp_avg, exp_avg_sq, master_param; beside moments that are not float32 a scale each
  State make_state(const Parameter& parameter) override {
    const Tensor& param = parameter.tensor;
    const bool is_float = config_.args.exp_avg_dtype == "float32";
    State state;
    const auto add = [&](Op op, const Shape& sizes, DType dtype) {
      state.push_back(empty(context_, op, sizes, dtype, Role::optimizer_state));
    };
    for (int moment = 0; moment < 2; ++moment) {
      add(Op::empty, param.sizes(), is_float ? DType::float32 : DType::bfloat16);
      if (!is_float) add(Op::ones_like, {1}, DType::float32);
    }
    if (!config_.args.master_weights) return state;
    if (config_.args.store_param_remainders && param.dtype() == DType::bfloat16) {
      add(Op::zeros_like, param.sizes(), DType::float16);  // int16
      return state;
    }
    // _initialize_state(param, "master_param"), and then param.clone().detach().float(), which is copied into it
    add(Op::empty, param.sizes(), DType::float32);
    Tensor master = clone(param);
    if (master.dtype() != DType::float32) master = empty_like(Op::to_copy, master, DType::float32);
    update_(Op::copy, {&state[state.size() - 1], &master});
    return state;
  }

  void update(Group& group) override {
    fused_(Op::fused_adam, group.parameters, config_.args.master_weights ? 3 : 2, false);
  }

  Tensor dummy_overflow_buf_;
};

}  // namespace

std::unique_ptr<Optimizer> make_te_fused_adam(Context& context, const OptimizerConfig& config) {
  return std::make_unique<TransformerEngineFusedAdam>(context, config);
}

}  // namespace oometer
