#include "train/optimizers/low_rank.h"

#include "ops/ops.h"
#include "train/optimizers/foreach.h"

namespace oometer {

void LowRankAdamW::step() {
  LowRank::step();
  for (Tensor* name : {&grad_, &denom_, &norm_grad_}) name->reset();
}

void LowRankAdamW::update(Group& group) {
  for_each_tensor(group.parameters, group.states, [&](const Tensor& p, const Tensor& of_p, State& state) {
    const bool is_first = state.empty();
    if (is_first) state.resize(has_rank(group) ? 4 : 2);
    grad_ = of_p;
    if (has_rank(group)) grad_ = project(grad_, state, is_first);
    if (is_first)
      for (const std::size_t i : {exp_avg, exp_avg_sq})
        state[i] = empty(context_, Op::zeros_like, grad_.sizes(), grad_.dtype(), Role::optimizer_state);
    update_(Op::add, {&state[exp_avg], &grad_});
    update_(Op::addcmul, {&state[exp_avg_sq], &grad_});
    denom_ = pointwise(Op::sqrt, {&state[exp_avg_sq]}, grad_.dtype());
    update_(Op::add, {&denom_});
    norm_grad_ = div(state[exp_avg], denom_);
    if (has_rank(group)) project_back(of_p, state, is_first);
    update_(Op::add, {&p, &norm_grad_});
    if (group.weight_decay > 0) update_(Op::add, {&p});
  });
}

// GaLoreProjector.get_orthogonal_matrix
Tensor singular_vectors(const Tensor& grad, const OptimizerConfig& config) {
  Context& context = grad.context();
  const bool is_left = projects_left(grad, config.args.proj_type), is_float = grad.dtype() == DType::float32;
  const std::int64_t least = std::min(grad.size(0), grad.size(1)), rank = std::min(config.args.rank, least);
  Tensor matrix;
  if (!is_float) matrix = empty_like(Op::to_copy, grad, DType::float32);
  const Tensor u = empty(context, Op::empty, {grad.size(0), least}, DType::float32);
  const Tensor s = empty(context, Op::empty, {least}, DType::float32);
  const Tensor vh = empty(context, Op::empty, {least, grad.size(1)}, DType::float32);
  const Tensor left = slice(u, 1, 0, rank), right = slice(vh, 0, 0, rank);
  Tensor product;  // the other factor, which nobody reads
  {
    const Tensor diagonal = empty(context, Op::eye, {rank, rank}, DType::float32);
    product = is_left ? matmul(diagonal, right) : matmul(left, diagonal);
  }
  const Tensor& vectors = is_left ? left : right;
  Tensor kept = is_float ? vectors : empty(context, Op::to_copy, vectors.sizes(), grad.dtype());
  matrix.reset();
  context.set_role(kept, Role::optimizer_state, context.module);
  return kept;
}

Tensor times_projection(const Tensor& grad, const Tensor& ortho_matrix, const OptimizerConfig& config) {
  const Tensor transposed = transpose(ortho_matrix, 0, 1);
  return projects_left(grad, config.args.proj_type) ? matmul(transposed, grad) : matmul(grad, transposed);
}

Tensor from_projection(const Tensor& low_rank_grad, const Tensor& ortho_matrix, bool is_left) {
  const Tensor full_rank_grad = is_left ? matmul(ortho_matrix, low_rank_grad) : matmul(low_rank_grad, ortho_matrix);
  return mul_scalar(full_rank_grad);
}

}  // namespace oometer
