#pragma once

#include "tensor/tensor.h"

namespace oometer {

/// LLaMA-Factory's get_batch_logps of 0.9.5 (train/trainer_utils.py).
struct BatchLogps {
  Tensor logps, valid_length;  ///< of each row: the sum over its scored tokens, and how many they are
};
/// `splits_lengths`: ld_alpha weighs what the longer one of two answers has beyond the shorter one.
BatchLogps batch_logps(const Tensor& all_logits, const Tensor& all_labels, bool splits_lengths = false);

}  // namespace oometer
