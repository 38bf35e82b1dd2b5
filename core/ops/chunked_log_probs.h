#pragma once

#include <cstdint>

#include "tensor/tensor.h"

namespace oometer {

/// What ChunkedLogProbFunction gives of each token: [n].
struct ChunkedLogProbs {
  Tensor log_probs, entropy;    ///< float32
  Tensor mean_logits, is_top1;  ///< float32, booleans; autograd does not follow them
};

/// Which of these are computed beside the log-probabilities.
struct LogProbOutputs {
  bool entropy = false, mean_logits = false, is_top1 = false;
};

/// ChunkedLogProbFunction (trl 1.16, kernels/chunked_logprob.py): log-probabilities of `targets` [n] after hidden [n,
/// h] has gone through weight [classes, h] and bias [classes], which may be null, in tiles of 4096 tokens and `chunk`
/// classes, which forward and backward make in one buffer. Triton's kernels, which work on the tiles, allocate nothing.
ChunkedLogProbs chunked_log_probs(const Tensor& hidden, const Tensor& weight, const Tensor& targets, std::int64_t chunk,
                                  const LogProbOutputs& outputs = {}, const Tensor& bias = {});

}  // namespace oometer
