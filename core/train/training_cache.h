#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "nn/kv_cache.h"
#include "tensor/tensor_list.h"

namespace oometer {

/// The DynamicCache (transformers 5.23, cache_utils.py) that a model's forward makes in training where use_cache is on:
/// keys and values are copied into it, with gradients, and live as long as the outputs that hold it.
class TrainingCache : public KvCache {
 public:
  States update(std::size_t layer, const Tensor& keys, const Tensor& values) override;
  std::int64_t length() const override { return length_; }
  bool takes_padding() const override { return true; }
  std::int64_t mask_length(std::int64_t queries, std::int64_t) const override { return length_ + queries; }

 private:
  TensorList states_;
  std::int64_t length_ = 0;
};

}  // namespace oometer
