#pragma once

#include <vector>

#include "models/model.h"

namespace oometer {

/// scale_grads_and_clip_grad_norm of NeMo Automodel 0.7 (components/training/utils.py), of gradients that Triton's
/// kernel reads (components/training/triton/grad_norm.py). The norm, which the recipe keeps until its step is over.
Tensor clip_recipes_grad_norm(Context& context, const std::vector<Parameter>& parameters);

}  // namespace oometer
