#include "generation/cache.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "generation/headinfer.h"
#include "generation/mtla.h"
#include "generation/quantized_cache.h"
#include "ops/ops.h"

namespace oometer {

namespace {

/// The last of `states` that a layer with that window keeps: sliding_window - 1 of them, a view.
Tensor last_of(const Tensor& states, std::int64_t window) {
  const std::int64_t tokens = states.size(2), kept = std::min(tokens, window - 1);
  return slice(states, 2, tokens - kept, kept);
}

/// torch.cat of what was there and what is new.
/// DynamicLayer: the old states go when the new are there. DynamicSlidingWindowLayer: when both are; what it keeps for
/// the next step is a view, so all of it stays until then.
class DynamicCache : public GrowingCache {
 public:
  DynamicCache(Context& context, std::vector<std::int64_t> of_layers)
      : GrowingCache(std::move(of_layers)), context_(context), layers_(windows.size()) {}

  States update(std::size_t layer, const Tensor& keys, const Tensor& values) override {
    Layer& own = layers_[layer];
    counted_layer_ = std::min(counted_layer_, layer);
    if (!own.keys) {
      own.module = context_.module;
      if (windows[layer] != 0) own.sliding_window = empty(context_, Op::to_copy, {}, DType::int64, Role::kv_cache);
    }
    if (layer == counted_layer_) length_ += keys.size(2);
    return append(layer, keys.sizes(), values.sizes(), keys.dtype());
  }

  void grow(std::int64_t tokens) override {
    length_ += tokens;
    for (std::size_t i = 0; i < layers_.size(); ++i) {
      if (!layers_[i].keys) continue;  // it has states of one size
      const ModuleScope scope(context_, layers_[i].module);
      if (has_workspaces)
        const GemmWorkspace workspace(context_);  // of any of its products: large, where the cache's tensors lie
      Shape keys = layers_[i].keys.sizes(), values = layers_[i].values.sizes();
      // With a window: what the last of these steps comes to.
      const std::int64_t held = keys[2];
      keys[2] = values[2] = windows[i] != 0 ? std::min(tokens, windows[i] - held) : tokens;
      append(i, keys, values, layers_[i].keys.dtype());
    }
  }

 private:
  struct Layer {
    Tensor keys, values, sliding_window;
    ModuleId module = 0;
  };

  States append(std::size_t layer, Shape keys, Shape values, DType dtype) {
    Layer& own = layers_[layer];
    if (own.keys) {
      keys[2] += own.keys.size(2);
      values[2] += own.values.size(2);
    }
    const auto join = [&](const Shape& sizes) { return empty(context_, Op::cat, sizes, dtype, Role::kv_cache); };
    if (windows[layer] == 0) {
      own.keys = join(keys);
      own.values = join(values);
      return {own.keys, own.values};
    }
    States full;
    full.keys = join(keys);
    full.values = join(values);
    own.keys = last_of(full.keys, windows[layer]);
    own.values = last_of(full.values, windows[layer]);
    return full;
  }

  Context& context_;
  List<Layer> layers_;
  std::size_t counted_layer_ = static_cast<std::size_t>(-1);  ///< get_seq_length's: the first with keys and values
};

/// DynamicCache(offloading=True): a layer's states go to host memory when its attention has them, and come back, on a
/// stream of their own, while the layer before it runs (Cache.update, prefetch, offload). The copies that attention
/// works on are gone with it.
class OffloadedCache : public GrowingCache {
 public:
  OffloadedCache(Context& context, std::vector<std::int64_t> of_layers)
      : GrowingCache(std::move(of_layers)), context_(context), layers_(windows.size()) {}

  States update(std::size_t layer, const Tensor& keys, const Tensor& values) override {
    Layer& own = layers_[layer];
    prefetch((layer + 1) % layers_.size());
    if (own.keys.ndim() == 0) {
      own = {{}, {}, keys.sizes(), values.sizes(), keys.dtype(), context_.module};
      own.keys[2] = own.values[2] = 0;
      if (windows[layer] != 0) own.sliding_window = empty(context_, Op::to_copy, {}, DType::int64, Role::kv_cache);
    }
    if (layer == 0) length_ += keys.size(2);
    return append(layer, keys.size(2));
  }

  void grow(std::int64_t tokens) override {
    length_ += tokens;
    for (std::size_t i = 0; i < layers_.size(); ++i) {
      const ModuleScope scope(context_, layers_[i].module);
      prefetch((i + 1) % layers_.size());
      append(i, windows[i] != 0 ? std::min(tokens, windows[i] - layers_[i].keys[2]) : tokens);
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
    Tensor sliding_window;
    Shape keys{}, values{};
    DType dtype = DType::float32;
    ModuleId module = 0;
  };

  void prefetch(std::size_t layer) {
    constexpr std::uint8_t kPrefetchStream = 1;
    Layer& next = layers_[layer];
    if (next.keys.ndim() == 0 || next.keys[2] == 0 || next.device.keys) return;
    const Scoped<std::uint8_t> stream(context_.stream, kPrefetchStream);
    next.device.keys = copy(next.keys, next.dtype, Op::to_copy);
    next.device.values = copy(next.values, next.dtype, Op::to_copy);
  }

  /// The states with the new ones, as attention takes them.
  States append(std::size_t index, std::int64_t tokens) {
    Layer& layer = layers_[index];
    layer.keys[2] += tokens;
    layer.values[2] += tokens;
    States full;
    full.keys = copy(layer.keys, layer.dtype, Op::cat);
    if (windows[index] == 0) layer.device.keys.reset();  // one after the other
    full.values = copy(layer.values, layer.dtype, Op::cat);
    layer.device = {};
    if (windows[index] != 0) {
      for (const Tensor& states : {full.keys, full.values}) {
        const Tensor last = last_of(states, windows[index]);
        const Tensor to_host = contiguous(last);
      }
      layer.keys[2] = layer.values[2] = std::min(layer.keys[2], windows[index] - 1);
    }
    return full;
  }

  Tensor copy(const Shape& sizes, DType dtype, Op op) const {
    return empty(context_, op, sizes, dtype, Role::kv_cache);
  }

  Context& context_;
  List<Layer> layers_;
};

/// StaticLayer: all of it is made when the first states come; new ones are copied in (index_copy_).
/// StaticSlidingWindowLayer: as many as the window; more tokens are joined for attention first, and once it is full a
/// new one rolls it on.
class StaticCache : public GrowingCache {
 public:
  StaticCache(Context& context, std::vector<std::int64_t> of_layers, std::int64_t max_cache_len)
      : GrowingCache(std::move(of_layers)), context_(context), max_cache_len_(max_cache_len), layers_(windows.size()) {}

  States update(std::size_t layer, const Tensor& keys, const Tensor& values) override {
    Layer& own = layers_[layer];
    const std::int64_t longest = layer_length(windows[layer]), queries = keys.size(2);
    const auto sized = [&](Op op, const Tensor& states, std::int64_t tokens) {
      Shape sizes = states.sizes();
      sizes[2] = tokens;
      return empty(context_, op, sizes, states.dtype(), Role::kv_cache);
    };
    if (!own.keys) {
      own.keys = sized(Op::zeros, keys, longest);
      own.values = sized(Op::zeros, values, longest);
      own.cumulative_length = empty(context_, Op::to_copy, {}, DType::int64, Role::kv_cache);
    }
    const std::int64_t past = own.length;
    own.length += queries;
    if (layer == 0) length_ += queries;
    if (windows[layer] == 0 || own.length <= longest) {
      Tensor cache_position = empty(context_, Op::arange, {queries}, DType::int64);
      cache_position = add_scalar(cache_position);
    } else if (past >= longest && queries == 1) {
      const Tensor new_keys = sized(Op::roll, keys, longest), new_values = sized(Op::roll, values, longest);
      const Tensor index = empty(context_, Op::to_copy, {1}, DType::int64);
    } else {
      if (past == 0) return {keys, values};
      const std::int64_t before = past >= longest ? longest - 1 : past;
      States full;
      full.keys = sized(Op::cat, keys, before + queries);
      full.values = sized(Op::cat, values, before + queries);
      return full;
    }
    return {own.keys, own.values};
  }

  std::int64_t mask_length(std::int64_t queries, std::int64_t sliding_window) const override {
    const std::int64_t longest = layer_length(sliding_window);
    if (sliding_window == 0 || length_ + queries <= longest) return longest;
    return std::min(length_, longest - 1) + queries;
  }
  bool is_compileable() const override { return true; }
  void grow(std::int64_t tokens) override {
    length_ += tokens;
    for (Layer& layer : layers_) layer.length += tokens;
  }

 private:
  struct Layer {
    Tensor keys, values, cumulative_length;
    std::int64_t length = 0;
  };

  std::int64_t layer_length(std::int64_t window) const {
    return window != 0 ? std::min(window, max_cache_len_) : max_cache_len_;
  }

  Context& context_;
  std::int64_t max_cache_len_;
  List<Layer> layers_;
};

}  // namespace

KvCache::States PagedCache::update(std::size_t layer, const Tensor& keys, const Tensor& values) {
  if (layer >= layers.size()) layers.resize(layer + 1);
  layers[layer] = {context_.module, (keys.nbytes() + values.nbytes()) / (keys.size(0) * keys.size(2))};
  return {keys, values};
}

std::unique_ptr<GrowingCache> make_cache(Context& context, const CacheConfig& config, std::int64_t tokens,
                                         std::vector<std::int64_t> windows) {
  if (config.implementation == CacheImplementation::offloaded)
    return std::make_unique<OffloadedCache>(context, std::move(windows));
  if (config.implementation == CacheImplementation::headinfer) return std::make_unique<HeadCache>(context);
  if (config.implementation == CacheImplementation::mtla)
    return std::make_unique<TemporalCache>(context, config.stride);
  if (config.implementation == CacheImplementation::static_)
    return std::make_unique<StaticCache>(context, std::move(windows), std::max(tokens, config.max_cache_len));
  if (config.implementation == CacheImplementation::quantized) {
    if (config.backend == CacheBackend::fp8) return std::make_unique<Fp8Cache>(context, std::move(windows));
    return std::make_unique<QuantizedCache>(context, config, std::move(windows));
  }
  return std::make_unique<DynamicCache>(context, std::move(windows));
}

}  // namespace oometer
