#include "generation/cache.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "generation/headinfer.h"
#include "generation/mtla.h"
#include "ops/ops.h"

namespace oometer {

namespace {

/// What a layer of a cache holds, and the module that its memory is put down to.
struct CacheLayer {
  Tensor keys, values;
  ModuleId module = 0;
};

/// DynamicLayer: keys and values are torch.cat of what was there and what is new; the old ones go when the new are
/// there.
class DynamicCache : public GrowingCache {
 public:
  explicit DynamicCache(Context& context) : context_(context) {}

  States update(std::size_t layer, const Tensor& keys, const Tensor& values) override {
    if (layer >= layers_.size()) layers_.resize(layer + 1);
    CacheLayer& own = layers_[layer];
    if (!own.keys) own.module = context_.module;
    append(own.keys, keys.sizes(), keys.dtype());
    append(own.values, values.sizes(), values.dtype());
    return {own.keys, own.values};
  }

  std::int64_t length() const override { return layers_.empty() ? 0 : layers_[0].keys.size(2); }

  void grow(std::int64_t tokens) override {
    for (CacheLayer& layer : layers_) {
      const ModuleScope scope(context_, layer.module);
      { const GemmWorkspace workspace(context_); }  // of any of its products: large, where the cache's tensors lie
      for (Tensor* states : {&layer.keys, &layer.values}) {
        Shape sizes = states->sizes();
        sizes[2] = tokens;
        append(*states, sizes, states->dtype());
      }
    }
  }

 private:
  void append(Tensor& states, Shape sizes, DType dtype) {
    if (states) sizes[2] += states.size(2);
    states = empty(context_, Op::cat, sizes, dtype, Role::kv_cache);
  }

  Context& context_;
  std::vector<CacheLayer> layers_;
};

/// DynamicCache(offloading=True): a layer's states go to host memory when its attention has them, and come back, on a
/// stream of their own, while the layer before it runs (Cache.update, prefetch, offload). The copies that attention
/// works on are gone with it.
class OffloadedCache : public GrowingCache {
 public:
  OffloadedCache(Context& context, std::size_t layers) : context_(context), layers_(layers) {}

  States update(std::size_t layer, const Tensor& keys, const Tensor& values) override {
    Layer& own = layers_[layer];
    if (own.keys.ndim() == 0) {
      own = {{}, keys.sizes(), values.sizes(), keys.dtype(), context_.module};
      own.keys[2] = own.values[2] = 0;
    }
    prefetch((layer + 1) % layers_.size());
    return append(own, keys.size(2));
  }

  std::int64_t length() const override { return layers_[0].keys.ndim() == 0 ? 0 : layers_[0].keys[2]; }

  void grow(std::int64_t tokens) override {
    for (std::size_t i = 0; i < layers_.size(); ++i) {
      const ModuleScope scope(context_, layers_[i].module);
      prefetch((i + 1) % layers_.size());
      append(layers_[i], tokens);
    }
  }

  std::int64_t host_bytes() const override {
    std::int64_t bytes = 0;
    for (const Layer& layer : layers_)
      if (layer.keys.ndim() > 0) bytes += (numel(layer.keys) + numel(layer.values)) * element_size(layer.dtype);
    return bytes;
  }

 private:
  struct Layer {
    States device;  ///< prefetched
    Shape keys{}, values{};
    DType dtype = DType::float32;
    ModuleId module = 0;
  };

  void prefetch(std::size_t layer) {
    constexpr std::uint8_t kPrefetchStream = 1;
    Layer& next = layers_[layer];
    if (next.keys.ndim() == 0 || next.keys[2] == 0 || next.device.keys) return;
    const Scoped<std::uint8_t> stream(context_.stream, kPrefetchStream);
    place(next, Op::to_copy);
  }

  /// The states with the new ones, as attention takes them.
  States append(Layer& layer, std::int64_t tokens) {
    layer.keys[2] += tokens;
    layer.values[2] += tokens;
    place(layer, Op::cat);
    return std::exchange(layer.device, {});
  }

  /// One after the other: what was there goes when its successor is there.
  void place(Layer& layer, Op op) {
    layer.device.keys = empty(context_, op, layer.keys, layer.dtype, Role::kv_cache);
    layer.device.values = empty(context_, op, layer.values, layer.dtype, Role::kv_cache);
  }

  Context& context_;
  std::vector<Layer> layers_;
};

/// StaticLayer: all of it is made when the first states come; new ones are copied in (index_copy_).
class StaticCache : public GrowingCache {
 public:
  StaticCache(Context& context, std::int64_t max_cache_len) : context_(context), max_cache_len_(max_cache_len) {}

  States update(std::size_t layer, const Tensor& keys, const Tensor& values) override {
    if (layer >= layers_.size()) layers_.resize(layer + 1);
    Layer& own = layers_[layer];
    const auto zeros = [&](const Tensor& states) {
      Shape sizes = states.sizes();
      sizes[2] = max_cache_len_;
      return empty(context_, Op::zeros, sizes, states.dtype(), Role::kv_cache);
    };
    if (!own.keys) {
      own.keys = zeros(keys);
      own.values = zeros(values);
      own.cumulative_length = empty(context_, Op::to_copy, {}, DType::int64, Role::kv_cache);
    }
    Tensor cache_position = empty(context_, Op::arange, {keys.size(2)}, DType::int64);
    cache_position = add_scalar(cache_position);
    if (layer == 0) length_ += keys.size(2);
    return {own.keys, own.values};
  }

  std::int64_t length() const override { return length_; }
  std::int64_t mask_length(std::int64_t) const override { return max_cache_len_; }
  bool is_compileable() const override { return true; }
  void grow(std::int64_t tokens) override { length_ += tokens; }

 private:
  struct Layer {
    Tensor keys, values, cumulative_length;
  };

  Context& context_;
  std::int64_t max_cache_len_, length_ = 0;
  std::vector<Layer> layers_;
};

}  // namespace

KvCache::States PagedCache::update(std::size_t layer, const Tensor& keys, const Tensor& values) {
  if (layer >= layers.size()) layers.resize(layer + 1);
  layers[layer] = {context_.module, (keys.nbytes() + values.nbytes()) / (keys.size(0) * keys.size(2))};
  return {keys, values};
}

std::unique_ptr<GrowingCache> make_cache(Context& context, const CacheConfig& config, std::int64_t tokens,
                                         std::size_t layers) {
  if (config.implementation == CacheImplementation::offloaded) return std::make_unique<OffloadedCache>(context, layers);
  if (config.implementation == CacheImplementation::headinfer) return std::make_unique<HeadCache>(context);
  if (config.implementation == CacheImplementation::mtla)
    return std::make_unique<TemporalCache>(context, config.stride);
  if (config.implementation == CacheImplementation::static_)
    return std::make_unique<StaticCache>(context, std::max(tokens, config.max_cache_len));
  return std::make_unique<DynamicCache>(context);
}

}  // namespace oometer
