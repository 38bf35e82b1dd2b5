#pragma once

#include "ops/ops.h"

/// What Adafactor's followers share: AdaLOMO and GaLore have copies of these functions.
namespace oometer {

/// _rms: tensor.norm(2) / (tensor.numel() ** 0.5)
Tensor rms_of(const Tensor& x);
/// torch.norm(x), of all elements
Tensor norm_of(const Tensor& x);
/// _approx_sq_grad: a second moment from those of its rows and columns.
Tensor approx_sq_grad(const Tensor& exp_avg_sq_row, const Tensor& exp_avg_sq_col);
/// update.div_((self._rms(update) / clip_threshold).clamp_(min=1.0))
void divide_by_rms(const Tensor& update);

}  // namespace oometer
