#include <utility>

#include "ops/ops.h"
#include "train/optimizers/classes.h"
#include "train/optimizers/foreach.h"

namespace oometer {

namespace {

/// x.norm(2), which is read from the device.
void read_norm(const Tensor& x) {
  std::vector<int> dims;
  for (int i = 0; i < x.ndim(); ++i) dims.push_back(i);
  const Tensor norm = reduce(Op::linalg_vector_norm, x, dims, false, x.dtype());
}

/// torch.linalg.vector_norm(grad, dim=dim, keepdim=True)
Tensor norm_of(const Tensor& grad, int dim) { return reduce(Op::linalg_vector_norm, grad, {dim}, true, grad.dtype()); }

/// torch.optim.Adafactor (PyTorch 2.15: torch/optim/_adafactor.py).
class Adafactor final : public Optimizer {
 public:
  using Optimizer::Optimizer;

 private:
  enum : std::size_t { row_var, col_var, variance = 0 };

  State make_state(const Parameter& parameter) override {
    const Tensor& grad = parameter.tensor->grad;
    if (grad.ndim() <= 1) return {state_like(grad)};
    Shape rows = grad.sizes(), columns = grad.sizes();
    rows[rows.ndim() - 1] = 1;
    columns[columns.ndim() - 2] = 1;
    State state;
    state.push_back(empty(context_, Op::zeros, rows, grad.dtype(), Role::optimizer_state));
    state.push_back(empty(context_, Op::zeros, columns, grad.dtype(), Role::optimizer_state));
    return state;
  }

  void update(Group& group) override {
    if (config_.implementation == OptimizerImplementation::for_loop) return single_tensor(group);
    // _multi_tensor_adafactor; _group_tensors_by_device_dtype_and_is_multidim: those that come first, first.
    std::vector<TensorLists> groups;
    for (const TensorLists& lists : group_tensors(group.parameters, group.states)) {
      const bool first = lists.params.front().ndim() > 1;
      for (const bool is_multidim : {first, !first})
        if (TensorLists part = part_of(lists, group, is_multidim); !part.params.empty())
          groups.push_back(std::move(part));
    }
    TensorList var_estimates, updates;  // two names of one list, bound one after the other
    for (const TensorLists& lists : groups) {
      for (const Tensor& param : lists.params) read_norm(param);
      if (group.weight_decay != 0) lists.foreach_(Op::foreach_mul, {&lists.params});
      var_estimates = lists.states.size() > 1 ? of_matrices(lists) : of_vectors(lists);
      lists.foreach_(Op::foreach_clamp_min, {&var_estimates});
      lists.foreach_(Op::foreach_rsqrt, {&var_estimates});
      lists.foreach_(Op::foreach_mul, {&var_estimates, &lists.grads});
      updates = var_estimates;
      for (const Tensor& update : updates) read_norm(update);
      lists.foreach_(Op::foreach_mul, {&updates});
      lists.foreach_(Op::foreach_add, {&lists.params, &updates});
    }
  }

  static TensorLists part_of(const TensorLists& lists, const Group& group, bool is_multidim) {
    TensorLists part;
    part.states.resize(is_multidim ? 2 : 1);
    for (std::size_t i = 0; i < lists.params.size(); ++i) {
      if ((lists.params[i].ndim() > 1) != is_multidim) continue;
      part.modules.push_back(lists.modules[i]);
      part.params.push_back(lists.params[i]);
      part.grads.push_back(lists.grads[i]);
      const State& state = group.states[lists.indices[i]];
      for (std::size_t k = 0; k < state.size(); ++k) part.states[k].push_back(state[k]);
    }
    return part;
  }

  static TensorList of_matrices(const TensorLists& lists) {
    for (const int dim : {-1, -2}) {
      TensorList means;  // row_means, col_means
      for (const Tensor& grad : lists.grads) means.push_back(norm_of(grad, dim));
      lists.foreach_(Op::foreach_mul, {&means});
      lists.foreach_(Op::foreach_div, {&means});
      lists.foreach_(Op::foreach_lerp, {&lists.states[dim == -1 ? row_var : col_var], &means});
    }
    TensorList estimates, row_var_means;
    for (std::size_t i = 0; i < lists.params.size(); ++i)
      estimates.push_back(matmul(lists.states[row_var][i], lists.states[col_var][i]));
    for (const Tensor& rows : lists.states[row_var]) row_var_means.push_back(mean(rows, -2, true));
    lists.foreach_(Op::foreach_clamp_min, {&row_var_means});
    lists.foreach_(Op::foreach_div, {&estimates, &row_var_means});
    return estimates;
  }

  static TensorList of_vectors(const TensorLists& lists) {
    {
      const TensorList grads_squared = lists.foreach (Op::foreach_mul, {&lists.grads});
      lists.foreach_(Op::foreach_lerp, {&lists.states[variance], &grads_squared});
    }
    TensorList estimates;
    for (const Tensor& each : lists.states[variance]) estimates.push_back(clone(each));
    return estimates;
  }

  void single_tensor(Group& group) const {
    Tensor row_mean, col_mean, grad_squared, var_estimate, result;  // of _single_tensor_adafactor; result: `update`
    for_each_tensor(group.parameters, group.states, [&](const Tensor& param, const Tensor& grad, State& state) {
      read_norm(param);
      if (group.weight_decay != 0) update_(Op::mul, {&param});
      if (grad.ndim() > 1) {
        row_mean = norm_of(grad, -1);
        update_(Op::lerp, {&state[row_var], &row_mean});
        col_mean = norm_of(grad, -2);
        update_(Op::lerp, {&state[col_var], &col_mean});
        var_estimate = matmul(state[row_var], state[col_var]);
        const Tensor row_var_mean = mean(state[row_var], -2, true);
        update_(Op::div, {&var_estimate, &row_var_mean});
      } else {
        grad_squared = mul(grad, grad);
        update_(Op::lerp, {&state[variance], &grad_squared});
        var_estimate = clone(state[variance]);
      }
      update_(Op::rsqrt, {&var_estimate});
      result = var_estimate;
      update_(Op::mul, {&result, &grad});
      read_norm(result);
      update_(Op::add, {&param, &result});
    });
    row_mean.reset();
    col_mean.reset();
    grad_squared.reset();
  }
};

}  // namespace

std::unique_ptr<Optimizer> make_adafactor(Context& context, const OptimizerConfig& config) {
  return std::make_unique<Adafactor>(context, config);
}

}  // namespace oometer
