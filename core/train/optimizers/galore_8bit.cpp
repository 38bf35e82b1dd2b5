#include <utility>

#include "ops/ops.h"
#include "train/optimizers/bitsandbytes.h"
#include "train/optimizers/classes.h"
#include "train/optimizers/foreach.h"
#include "train/optimizers/low_rank.h"

namespace oometer {

namespace {

/// galore_torch's AdamW8bit (1.0: adamw8bit.py): bitsandbytes' AdamW of projected gradients. A weight is put aside for
/// its update, and what is changed in its place is as small as the projected gradient, which takes the gradient's.
class GaLoreAdamW8bit final : public LowRank<BitsAndBytes> {
 public:
  using LowRank::LowRank;

  void step() override {
    LowRank::step();
    grad_.reset();
  }

 private:
  enum : std::size_t { ortho_matrix };

  State make_state(const Parameter& parameter) override {
    return is_projected(context_, config_, parameter) ? State() : BitsAndBytes::make_state(parameter);
  }

  void update(Group& group) override {
    if (!has_rank(group)) return BitsAndBytes::update(group);
    for (std::size_t i = 0; i < group.parameters.size(); ++i) {
      const Parameter& parameter = group.parameters[i];
      const Tensor& p = parameter.tensor;
      if (!p->grad) continue;
      const ModuleScope scope(context_, parameter.module);
      State& state = group.states[i];
      const bool is_first = state.empty();
      if (is_first) state.push_back(singular_vectors(p->grad, config_));
      {
        Tensor projected = times_projection(p->grad, state[ortho_matrix], config_);
        grad_ = std::move(projected);
      }
      Tensor saved_data = clone(p);
      context_.set_role(saved_data, Role::parameter, parameter.module);
      Tensor data = clone(grad_);
      if (data.dtype() != p.dtype()) data = empty_like(Op::to_copy, data, p.dtype());
      p->grad = grad_;
      set_data(p, saved_data);
      if (is_first) {
        State moments = BitsAndBytes::make_state({data, parameter.module, parameter.name, parameter.decays});
        for (std::size_t k = 0; k < moments.size(); ++k) state.push_back(moments[k]);
      }
      update_(Op::fused_adam, {&data, &grad_});
      Tensor back = from_projection(data, state[ortho_matrix], projects_left(p, config_.args.proj_type));
      update_(Op::add, {&p, &back});
      back.reset();
      if (group.weight_decay > 0) update_(Op::add, {&p});
    }
  }

  Tensor grad_;  ///< a name of `step`
};

}  // namespace

std::unique_ptr<Optimizer> make_galore_8bit(Context& context, const OptimizerConfig& config) {
  return std::make_unique<GaLoreAdamW8bit>(context, config);
}

}  // namespace oometer
