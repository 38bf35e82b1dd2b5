#include <utility>

#include "ops/ops.h"
#include "train/optimizers/classes.h"
#include "train/optimizers/foreach.h"

namespace oometer {

namespace {

/// torch.optim.Rprop, foreach (PyTorch 2.15: torch/optim/rprop.py).
class Rprop final : public Optimizer {
 public:
  using Optimizer::Optimizer;

 private:
  enum : std::size_t { prev, step_size };

  State make_state(const Parameter& parameter) override {
    State state;
    state.push_back(state_like(parameter.tensor));
    state.push_back(state_like(parameter.tensor, Op::full_like));
    return state;
  }

  // _multi_tensor_rprop
  void update(Group& group) override {
    TensorList grad_signs;
    for (const TensorLists& lists : group_tensors(group.parameters, group.states)) {
      const TensorList& prevs = lists.states[prev];
      TensorList signs = lists.foreach (Op::foreach_mul, {&lists.grads, &prevs});
      lists.foreach_(Op::foreach_copy, {&prevs, &lists.grads});
      lists.foreach_(Op::foreach_sign, {&signs});
      for (std::size_t i = 0; i < signs.size(); ++i) {
        const ModuleScope scope(context_, lists.modules[i]);
        for (const Op comparison : {Op::gt, Op::lt, Op::eq}) {  // sign[sign.gt(0)] = etaplus
          const Tensor mask = pointwise(comparison, {&signs[i]}, DType::boolean);
          update_(Op::masked_fill, {&signs[i], &mask});
        }
      }
      lists.foreach_(Op::foreach_mul, {&lists.states[step_size], &signs});
      for (const Tensor& size : lists.states[step_size]) update_(Op::clamp, {&size});
      for (std::size_t i = 0; i < signs.size(); ++i) {
        const ModuleScope scope(context_, lists.modules[i]);
        Tensor is_negative = pointwise(Op::eq, {&signs[i]}, DType::boolean);
        // torch.where(condition, 0, other): the number becomes a tensor beside `other` (where.ScalarSelf).
        Tensor zero = empty(context_, Op::where, {}, prevs[i].dtype());
        const Tensor kept = pointwise(Op::where, {&is_negative, &prevs[i]}, prevs[i].dtype());
        zero.reset();
        is_negative.reset();
        update_(Op::copy, {&prevs[i], &kept});
      }
      signs.clear();
      TensorList made;
      for (std::size_t i = 0; i < prevs.size(); ++i) {
        const ModuleScope scope(context_, lists.modules[i]);
        made.push_back(pointwise(Op::sign, {&prevs[i]}, prevs[i].dtype()));
      }
      grad_signs = std::move(made);
      lists.foreach_(Op::foreach_addcmul, {&lists.params, &grad_signs, &lists.states[step_size]});
    }
  }
};

}  // namespace

std::unique_ptr<Optimizer> make_rprop(Context& context, const OptimizerConfig& config) {
  return std::make_unique<Rprop>(context, config);
}

}  // namespace oometer
