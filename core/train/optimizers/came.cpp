#include <utility>

#include "ops/ops.h"
#include "train/optimizers/classes.h"
#include "train/optimizers/factored.h"
#include "train/optimizers/foreach.h"

namespace oometer {

namespace {

/// came_pytorch.CAME (0.1.3: CAME.py): one parameter after another, in float32.
class Came final : public Optimizer {
 public:
  using Optimizer::Optimizer;

 private:
  enum : std::size_t {
    exp_avg,
    exp_avg_sq,
    exp_avg_sq_row = exp_avg_sq,
    exp_avg_sq_col,
    exp_avg_res_row,
    exp_avg_res_col
  };
  static bool is_factored(const Tensor& grad) { return grad.ndim() >= 2; }
  /// The last: a new tensor in each step.
  static std::size_t rms(const Tensor& grad) { return is_factored(grad) ? exp_avg_res_col + 1 : exp_avg_sq + 1; }

  State make_state(const Parameter&) override { return {}; }

  State first_state(const Tensor& grad) const {
    State state;
    const auto zeros = [&](Op op, const Shape& sizes) {
      state.push_back(empty(context_, op, sizes, DType::float32, Role::optimizer_state));
    };
    zeros(Op::zeros_like, grad.sizes());
    if (!is_factored(grad)) {
      zeros(Op::zeros_like, grad.sizes());
    } else {
      Shape rows, columns;
      for (int i = 0; i < grad.ndim(); ++i) {
        if (i != grad.ndim() - 1) rows.push_back(grad.size(i));
        if (i != grad.ndim() - 2) columns.push_back(grad.size(i));
      }
      for (int moment = 0; moment < 2; ++moment) {
        zeros(Op::to_copy, rows);  // made on the host
        zeros(Op::to_copy, columns);
      }
    }
    state.resize(rms(grad) + 1);
    return state;
  }

  void update(Group& group) override {
    // Names of `step`, which outlive the loop.
    Tensor grad, change, res, res_approx;
    for_each_tensor(group.parameters, group.states, [&](const Tensor& p, const Tensor& of_p, State& state) {
      grad = of_p;
      if (grad.dtype() != DType::float32) grad = empty_like(Op::to_copy, of_p, DType::float32);
      if (state.empty()) state = first_state(grad);
      {
        Tensor root_mean_square = rms_of(p);
        context_.set_role(root_mean_square, Role::optimizer_state, context_.module);
        state[rms(grad)] = std::move(root_mean_square);
      }
      {
        Tensor square = pow(grad, 2);
        change = add_scalar(square);
      }
      if (is_factored(grad)) {
        moments_of(change, state, exp_avg_sq_row);
        change = approx_sq_grad(state[exp_avg_sq_row], state[exp_avg_sq_col]);
      } else {
        update_(Op::add, {&state[exp_avg_sq], &change});
        change = pointwise(Op::rsqrt, {&state[exp_avg_sq]}, DType::float32);
      }
      update_(Op::mul, {&change, &grad});
      divide_by_rms(change);
      update_(Op::add, {&state[exp_avg], &change});
      {
        Tensor difference = sub(change, state[exp_avg]);
        Tensor square = pow(difference, 2);
        difference.reset();
        res = add_scalar(square);
      }
      if (is_factored(grad)) {
        moments_of(res, state, exp_avg_res_row);
        res_approx = approx_sq_grad(state[exp_avg_res_row], state[exp_avg_res_col]);
        change = res_approx;
        update_(Op::mul, {&change, &state[exp_avg]});
      } else {
        change = clone(state[exp_avg]);
      }
      if (group.weight_decay != 0) update_(Op::add, {&p});
      update_(Op::mul, {&change});
      const Tensor negative = neg(change);
      update_(Op::add, {&p, &negative});
    });
    for (Tensor* name : {&grad, &change, &res, &res_approx}) name->reset();
  }

  static void moments_of(const Tensor& x, State& state, std::size_t row) {
    for (const int dim : {-1, -2}) {
      const Tensor means = mean(x, dim, false);
      update_(Op::add, {&state[dim == -1 ? row : row + 1], &means});
    }
  }
};

}  // namespace

std::unique_ptr<Optimizer> make_came(Context& context, const OptimizerConfig& config) {
  return std::make_unique<Came>(context, config);
}

}  // namespace oometer
