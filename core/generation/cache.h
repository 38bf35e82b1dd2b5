#pragma once

#include <memory>
#include <vector>

#include "generation/config.h"
#include "nn/kv_cache.h"
#include "tensor/context.h"

/// transformers 5.23, cache_utils.py.
namespace oometer {

/// A cache that can also be taken further without running a model: what attention would have done to it.
class GrowingCache : public KvCache {
 public:
  /// Decodes `tokens` at once, as far as the cache is concerned: each layer's states become so much longer in one step.
  virtual void grow(std::int64_t tokens) = 0;
  /// What of it lies in host memory.
  virtual std::int64_t host_bytes() const { return 0; }
};

/// `tokens`: what it will have to hold; `layers`: of the model's decoder.
std::unique_ptr<GrowingCache> make_cache(Context& context, const CacheConfig& config, std::int64_t tokens,
                                         std::size_t layers);

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

  std::vector<Layer> layers;

 private:
  Context& context_;
};

}  // namespace oometer
