#pragma once

#include <utility>

#include "tensor/context.h"
#include "tensor/tensor_list.h"

namespace oometer {

/// What transformers' capture_outputs collects of a decoder that is called with output_hidden_states (transformers
/// 5.23, utils/output_capturing.py): what its first layer gets, what each gives, and in place of the last of these the
/// last hidden state. Hooks of the layers find it as Context::hidden_states, and nobody while they are run again.
class HiddenStates {
 public:
  void add(Tensor states) { all_.push_back(std::move(states)); }
  void tie_last(const Tensor& last_hidden_state) {
    all_.back() = last_hidden_state;
    is_tied_ = true;
  }
  bool is_empty() const { return all_.empty(); }
  /// Null: the model's class has no decoder that is known to give it.
  Tensor last() const { return is_tied_ ? all_.back() : Tensor(); }

 private:
  TensorList all_;
  bool is_tied_ = false;
};

}  // namespace oometer
