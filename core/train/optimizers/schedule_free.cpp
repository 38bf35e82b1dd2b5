#include <utility>

#include "train/optimizers/classes.h"
#include "train/optimizers/foreach.h"

namespace oometer {

namespace {

/// schedulefree's AdamWScheduleFree, RAdamScheduleFree and SGDScheduleFree, foreach (1.4.1: adamw_schedulefree.py,
/// radam_schedulefree.py, sgd_schedulefree.py): z begins as a copy of the weights.
class ScheduleFree final : public Optimizer {
 public:
  using Optimizer::Optimizer;

  void step() override {
    ++steps_;
    Optimizer::step();
    denom_.clear();
  }

 private:
  enum : std::size_t { z, exp_avg_sq };

  bool has_second_moment() const { return config_.name != OptimizerName::schedule_free_sgd; }
  /// RAdam: rho_t > 4, with a beta2 of 0.99 or more (rho_t is nearly the number of steps at first).
  bool is_rectified() const { return config_.name != OptimizerName::schedule_free_radam || steps_ > 4; }

  State make_state(const Parameter& parameter) override {
    State state;
    state.push_back(state_like(parameter.tensor, Op::clone));
    if (has_second_moment()) state.push_back(state_like(parameter.tensor));
    return state;
  }

  // All types in one list.
  void update(Group& group) override {
    TensorLists lists;
    lists.states.resize(has_second_moment() ? 2 : 1);
    for (std::size_t i = 0; i < group.parameters.size(); ++i) {
      const Parameter& parameter = group.parameters[i];
      if (!parameter.tensor->grad) continue;
      lists.modules.push_back(parameter.module);
      lists.params.push_back(parameter.tensor);
      lists.grads.push_back(parameter.tensor->grad);
      for (std::size_t k = 0; k < lists.states.size(); ++k) lists.states[k].push_back(group.states[i][k]);
    }
    if (has_second_moment()) {
      const TensorList& squares = lists.states[exp_avg_sq];
      lists.foreach_(Op::foreach_mul, {&squares});
      lists.foreach_(Op::foreach_addcmul, {&squares, &lists.grads});
      if (is_rectified()) {
        denom_ = lists.foreach (Op::foreach_div, {&squares});
        lists.foreach_(Op::foreach_sqrt, {&denom_});
        lists.foreach_(Op::foreach_add, {&denom_});
        lists.foreach_(Op::foreach_div, {&lists.grads, &denom_});
      }
    }
    if (group.weight_decay != 0) lists.foreach_(Op::foreach_add, {&lists.grads, &lists.params});
    lists.foreach_(Op::foreach_lerp, {&lists.params, &lists.states[z]});
    lists.foreach_(Op::foreach_add, {&lists.params, &lists.grads});
    lists.foreach_(Op::foreach_sub, {&lists.states[z], &lists.grads});
  }

  TensorList denom_;  ///< of `step`: a group's is bound until the next one's is there
  int steps_ = 0;
};

}  // namespace

std::unique_ptr<Optimizer> make_schedule_free(Context& context, const OptimizerConfig& config) {
  return std::make_unique<ScheduleFree>(context, config);
}

}  // namespace oometer
