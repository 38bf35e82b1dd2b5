#include <string>
#include <string_view>

#include "ops/masks.h"
#include "ops/ops.h"
#include "rounding.h"
#include "train/optimizers/classes.h"
#include "train/optimizers/foreach.h"

namespace oometer {

namespace {

/// prodigyopt.Prodigy (1.1.2: prodigy.py): one loop over all weights finds the learning rate, a second one steps.
class Prodigy final : public Optimizer {
 public:
  using Optimizer::Optimizer;

  void step() override {
    Optimizer::step();
    for (Group& group : groups_) take_steps(group);
    denom_.reset();
  }

 private:
  enum : std::size_t { s, p0, exp_avg, exp_avg_sq };

  std::int64_t sliced(const Tensor& p) const { return divide_up(p.numel(), config_.args.slice_p); }

  /// A matrix that begins with zeros has one in the place of its p0.
  bool is_zero(const Parameter& parameter) {
    const std::string path = module_path(context_.log, parameter.module);
    if (path.find(".lora_B.") != std::string::npos) return true;
    for (ModuleId module = parameter.module; !context_.log.is_root(module);
         module = context_.log.modules[module].parent) {
      const std::string_view type = context_.log.modules[module].type;
      const bool is_tuner = type.find('.') != std::string_view::npos;
      if (is_tuner && !type.starts_with("lora.") && !context_.refusal)
        context_.refusal = Error{"not-modelled", "/training/optimizer",
                                 "Prodigy is supported with the weights themselves and LoRA; of other adapters it is "
                                 "not known which begin as zeros: expected another optimizer"};
    }
    return false;
  }

  State make_state(const Parameter&) override { return {}; }

  void make_first(const Parameter& parameter, State& state) {
    const Tensor& p = parameter.tensor;
    const auto zeros = [&](Op op, const Shape& sizes) {
      state.push_back(empty(context_, op, sizes, p.dtype(), Role::optimizer_state));
    };
    zeros(Op::zeros_like, {sliced(p)});
    {
      std::vector<int> dims;
      for (int i = 0; i < p.ndim(); ++i) dims.push_back(i);
      const Tensor any = all(Op::any, p, dims, false);
    }
    is_zero(parameter) ? zeros(Op::to_copy, {}) : zeros(Op::clone, {sliced(p)});
    zeros(Op::zeros_like, p.sizes());
    zeros(Op::zeros_like, p.sizes());
  }

  void update(Group& group) override {
    for (std::size_t i = 0; i < group.parameters.size(); ++i) {
      const Parameter& parameter = group.parameters[i];
      const Tensor& p = parameter.tensor;
      if (!p->grad) continue;
      const ModuleScope scope(context_, parameter.module);
      State& state = group.states[i];
      if (state.empty()) make_first(parameter, state);
      {
        const Tensor difference = empty(context_, Op::sub, {sliced(p)}, p.dtype());
        const Tensor dot = empty(context_, Op::mm, {}, p.dtype());
        const GemmWorkspace workspace(context_);
      }
      update_(Op::add, {&state[exp_avg], &p->grad});
      update_(Op::addcmul, {&state[exp_avg_sq], &p->grad});
      update_(Op::add, {&state[s], &p->grad});
      const Tensor magnitude = pointwise(Op::abs, {&state[s]}, p.dtype());
      const Tensor sum = reduce(Op::sum, magnitude, {0}, false, p.dtype());
    }
  }

  void take_steps(Group& group) {
    for_each_tensor(group.parameters, group.states, [&](const Tensor& p, const Tensor&, State& state) {
      denom_ = pointwise(Op::sqrt, {&state[exp_avg_sq]}, p.dtype());
      update_(Op::add, {&denom_});
      update_(Op::addcdiv, {&p, &state[exp_avg], &denom_});
    });
  }

  Tensor denom_;  ///< a name of `step`
};

}  // namespace

std::unique_ptr<Optimizer> make_prodigy(Context& context, const OptimizerConfig& config) {
  return std::make_unique<Prodigy>(context, config);
}

}  // namespace oometer
