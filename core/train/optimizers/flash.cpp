#include <algorithm>
#include <string>

#include "ops/ops.h"
#include "train/optimizers/classes.h"
#include "train/optimizers/foreach.h"

namespace oometer {

namespace {

/// FlashOptim's FlashAdam, FlashAdamW and FlashLion (0.1.4: optimizers.py), fused: one Triton kernel a weight. Moments
/// are in 8 bits with a float16 scale for each 32; of master weights there is what the weight's own type lacks.
class Flash final : public Optimizer {
 public:
  using Optimizer::Optimizer;

  void step() override {
    const auto is_float = [](const Parameter& each) { return each.tensor.dtype() == DType::float32; };
    const auto has_half = [&](const Group& group) {
      return !std::all_of(group.parameters.begin(), group.parameters.end(), is_float);
    };
    if (config_.args.master_weight_bits != 0 && std::none_of(groups_.begin(), groups_.end(), has_half) &&
        !context_.refusal)
      context_.refusal = Error{"inconsistent", "/training/optimizer",
                               "\"master_weight_bits=" + std::to_string(config_.args.master_weight_bits) +
                                   " has no effect when all parameters are fp32\"; expected args "
                                   "{\"master_weight_bits\": null}, or weights in bf16"};
    Optimizer::step();
  }

 private:
  // _ensure_state_initialized: exp_avg, exp_avg_sq, each with its scales; error_bits
  State make_state(const Parameter& parameter) override {
    const Tensor& param = parameter.tensor;
    State state;
    const std::size_t moments = config_.name == OptimizerName::flash_lion ? 1 : 2;
    for (std::size_t i = 0; i < moments; ++i) {
      if (!config_.args.quantize) {
        state.push_back(state_like(param));
        continue;
      }
      constexpr std::int64_t kGroupSize = 32;
      const std::int64_t groups = (param.numel() + kGroupSize - 1) / kGroupSize;
      const Tensor zeros = empty_like(Op::zeros_like, param);
      state.push_back(empty(context_, Op::empty, param.sizes(), DType::uint8, Role::optimizer_state));
      state.push_back(empty(context_, Op::empty, {groups}, DType::float16, Role::optimizer_state));
    }
    const std::int64_t lacks = config_.args.master_weight_bits / 8 - element_size(param.dtype());
    if (lacks > 0)
      state.push_back(empty(context_, Op::zeros_like, param.sizes(), lacks == 1 ? DType::uint8 : DType::float16,
                            Role::optimizer_state));  // of integers
    return state;
  }

  void update(Group& group) override {
    for_each_tensor(group.parameters, group.states, [](const Tensor& param, const Tensor& grad, State& state) {
      update_(Op::fused_adam, {&param, &grad});
      for (const Tensor& each : state) update_(Op::fused_adam, {&each});
    });
  }
};

}  // namespace

std::unique_ptr<Optimizer> make_flash(Context& context, const OptimizerConfig& config) {
  return std::make_unique<Flash>(context, config);
}

}  // namespace oometer
