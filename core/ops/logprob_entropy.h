#pragma once

#include "tensor/tensor.h"

namespace oometer {

/// _LogProbEntropyFunction (trl 1.16, kernels/logprob_entropy.py), of which the log-probabilities alone go on: logits
/// [b, s, classes], whose classes lie together, and index [b, s] give [b, s] in float32. Triton's kernels, which work
/// on the rows, allocate nothing.
Tensor selective_log_softmax(const Tensor& logits, const Tensor& index);

}  // namespace oometer
