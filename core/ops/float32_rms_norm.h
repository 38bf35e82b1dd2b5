#pragma once

#include "tensor/tensor.h"

namespace oometer {

/// nemo_automodel::float32_rms_norm (NeMo Automodel 0.7, components/models/common/utils.py): F.rms_norm of copies in
/// float32, of which it saves x and the weight alone. Its backward is compiled by Inductor.
Tensor float32_rms_norm(const Tensor& x, const Tensor& weight);

}  // namespace oometer
