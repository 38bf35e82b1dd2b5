#pragma once

#include <utility>
#include <vector>

#include "tensor/tensor.h"

namespace oometer {

/// A Python list of what holds tensors: it frees the last one first, as list_dealloc does. A plain vector's order is
/// the standard library's choice (libstdc++ begins at the front, libc++ at the back), and the log would follow it.
template <class Item>
class List : public std::vector<Item> {
 public:
  using std::vector<Item>::vector;
  List() = default;
  List(const List&) = default;
  List(List&&) noexcept = default;
  List& operator=(List other) noexcept {
    this->swap(other);
    return *this;
  }
  ~List() { clear(); }

  void clear() {
    while (!this->empty()) this->pop_back();
  }
};

using TensorList = List<Tensor>;

}  // namespace oometer
