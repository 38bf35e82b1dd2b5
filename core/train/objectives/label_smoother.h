#pragma once

#include "tensor/tensor.h"

namespace oometer {

/// LabelSmoother.__call__ (transformers 5.23, trainer_pt_utils.py): logits [b, s, classes], labels [b, s].
/// `shifts_labels`: of a causal model. `num_items_in_batch`: null where the class takes no such keyword.
Tensor smoothed_loss(const Tensor& logits, const Tensor& labels, bool shifts_labels, const Tensor& num_items_in_batch);

}  // namespace oometer
