#pragma once

#include <cstddef>
#include <cstdint>

#include "nn/kv_cache.h"
#include "ops/ops.h"
#include "tensor/tensor_list.h"

namespace oometer {

/// EncoderDecoderCache of two DynamicCaches, in which nothing is yet: each layer's keys and values are copied.
class CopiedStates : public KvCache {
 public:
  explicit CopiedStates(TensorList& states) : states_(states) {}
  States update(std::size_t, const Tensor& keys, const Tensor& values) override {
    States copied;
    copied.keys = cat({keys}, 2);
    copied.values = cat({values}, 2);
    states_.push_back(copied.keys);
    states_.push_back(copied.values);
    return copied;
  }
  std::int64_t length() const override { return 0; }
  std::int64_t mask_length(std::int64_t queries, std::int64_t) const override { return queries; }

 private:
  TensorList& states_;
};

}  // namespace oometer
