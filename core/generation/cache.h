#pragma once

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "generation/config.h"
#include "nn/kv_cache.h"
#include "tensor/context.h"
#include "tensor/tensor_list.h"

/// transformers 5.23, cache_utils.py.
namespace oometer {

/// A cache that can also be taken further without running a model: what attention would have done to it.
class GrowingCache : public KvCache {
 public:
  /// `of_layers`: see windows.
  explicit GrowingCache(std::vector<std::int64_t> of_layers) : windows(std::move(of_layers)) {}

  std::int64_t length() const override { return length_; }
  std::int64_t mask_length(std::int64_t queries, std::int64_t sliding_window) const override {
    return sliding_window != 0 ? std::min(length_, sliding_window - 1) + queries : length_ + queries;
  }
  /// Decodes `tokens` at once, as far as the cache is concerned: each layer's states become so much longer in one step.
  virtual void grow(std::int64_t tokens) = 0;
  /// What of it lies in host memory.
  virtual std::int64_t host_bytes() const { return 0; }

  bool has_workspaces = true;               ///< the model's products have cuBLAS's; not where all go through cuBLASLt
  const std::vector<std::int64_t> windows;  ///< each layer's sliding_window, or 0 (get_layer_types_and_kwargs)

 protected:
  std::int64_t length_ = 0;  ///< get_seq_length
};

/// `tokens`: what it will have to hold; `windows`: see there.
std::unique_ptr<GrowingCache> make_cache(Context& context, const CacheConfig& config, std::int64_t tokens,
                                         std::vector<std::int64_t> windows);

/// Notes what a pool of blocks would have to hold, and keeps nothing: attention works on the new states.
class PagedCache : public KvCache {
 public:
  struct Layer {
    ModuleId module = 0;
    std::int64_t token_bytes = 0;  ///< keys and values
  };

  explicit PagedCache(Context& context) : context_(context) {}
  States update(std::size_t layer, const Tensor& keys, const Tensor& values) override;
  std::int64_t length() const override { return 0; }
  /// Its kernel needs no masks: never as many as a window.
  std::int64_t mask_length(std::int64_t queries, std::int64_t sliding_window) const override {
    return sliding_window != 0 ? 0 : queries;
  }

  std::vector<Layer> layers;

 private:
  Context& context_;
};

}  // namespace oometer
