#pragma once

#include <utility>
#include <vector>

#include "tensor/tensor.h"

namespace oometer {

/// A Python list of tensors: it lets go of the last first, as list_dealloc does. A plain vector's order is the standard
/// library's choice (libstdc++ begins at the front, libc++ at the back), and the log would follow it.
class TensorList : public std::vector<Tensor> {
 public:
  using std::vector<Tensor>::vector;
  TensorList() = default;
  TensorList(const TensorList&) = default;
  TensorList(TensorList&&) noexcept = default;
  TensorList& operator=(TensorList other) noexcept {
    swap(other);
    return *this;
  }
  ~TensorList() { clear(); }

  void clear() {
    while (!empty()) pop_back();
  }
};

}  // namespace oometer
