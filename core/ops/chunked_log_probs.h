#pragma once

#include <cstdint>

#include "tensor/tensor.h"

namespace oometer {

/// What ChunkedLogProbFunction gives of each token: [n].
struct ChunkedLogProbs {
  Tensor log_probs, entropy;  ///< float32
  Tensor is_top1;             ///< booleans, which autograd does not follow
};

/// ChunkedLogProbFunction (trl 1.16, kernels/chunked_logprob.py): log-probabilities of `targets` [n] after hidden [n,
/// h] has gone through weight [classes, h], in tiles of 4096 tokens and `chunk` classes, which forward and backward
/// make in one buffer. Triton's kernels, which work on the tiles, allocate nothing. Without `with_metrics` the
/// log-probabilities are all.
ChunkedLogProbs chunked_log_probs(const Tensor& hidden, const Tensor& weight, const Tensor& targets, std::int64_t chunk,
                                  bool with_metrics);

}  // namespace oometer
