#pragma once

#include <memory>

#include "models/loss_function.h"

namespace oometer {

/// MaskedCrossEntropy of NeMo Automodel 0.7 (components/loss/masked_ce.py), of labels that are shifted already, and
/// what its recipe makes of the loss before backward (recipes/llm/train_ft.py: _forward_backward_step).
std::unique_ptr<LossFunction> make_masked_cross_entropy();

}  // namespace oometer
