#include "train/optimizers/factored.h"

#include <vector>

#include "train/optimizers/foreach.h"

namespace oometer {

Tensor norm_of(const Tensor& x) {
  std::vector<int> dims;
  for (int i = 0; i < x.ndim(); ++i) dims.push_back(i);
  return reduce(Op::linalg_vector_norm, x, dims, false, x.dtype());
}

Tensor rms_of(const Tensor& x) {
  const Tensor norm = norm_of(x);
  return div_scalar(norm);
}

Tensor approx_sq_grad(const Tensor& exp_avg_sq_row, const Tensor& exp_avg_sq_col) {
  Tensor r_factor;
  {
    const Tensor row_mean = mean(exp_avg_sq_row, -1, true);
    r_factor = div(exp_avg_sq_row, row_mean);
  }
  r_factor = unsqueeze(r_factor, r_factor.ndim());
  const Tensor columns = unsqueeze(exp_avg_sq_col, exp_avg_sq_col.ndim() - 1);
  const Tensor c_factor = pointwise(Op::rsqrt, {&columns}, exp_avg_sq_col.dtype());
  Tensor product = mul(r_factor, c_factor);
  r_factor.reset();
  return product;
}

void divide_by_rms(const Tensor& update) {
  Tensor root_mean_square = rms_of(update);
  const Tensor ratio = div_scalar(root_mean_square);
  root_mean_square.reset();
  update_(Op::div, {&update});
}

}  // namespace oometer
