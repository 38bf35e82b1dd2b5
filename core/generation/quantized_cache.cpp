#include "generation/quantized_cache.h"

#include "ops/ops.h"

namespace oometer {

namespace {

/// [b, heads, s, d] with so many tokens in place of s.
Shape with_tokens(Shape sizes, std::int64_t tokens) {
  sizes[2] = tokens;
  return sizes;
}

}  // namespace

KvCache::States QuantizedCache::update(std::size_t layer, const Tensor& keys, const Tensor& values) {
  Layer& own = layers_[layer];
  const std::int64_t tokens = keys.size(2);
  if (layer == 0) length_ += tokens;
  if (!own.keys.quantized.tensors.empty()) return append(own, tokens);
  own.module = context_.module;
  own.dtype = keys.dtype();
  own.keys.quantized = quantize(config_, config_.axis_key, contiguous(keys));
  own.values.quantized = quantize(config_, config_.axis_value, contiguous(values));
  return {keys, values};
}

KvCache::States QuantizedCache::append(Layer& layer, std::int64_t tokens) {
  const Tensor keys = dequantize(config_, config_.axis_key, layer.keys.quantized, layer.dtype);
  const Tensor values = dequantize(config_, config_.axis_value, layer.values.quantized, layer.dtype);
  const std::int64_t residual_length = layer.residual_length + tokens, all = keys.size(2) + residual_length;
  const auto join = [&](const Tensor& states, std::int64_t length) {
    return empty(context_, Op::cat, with_tokens(states.sizes(), length), layer.dtype, Role::kv_cache);
  };
  States full;
  full.keys = join(keys, all);
  full.values = join(values, all);
  layer.residual_length = residual_length < config_.residual_length ? residual_length : 0;
  if (layer.residual_length > 0) {
    layer.keys.residual = join(keys, residual_length);
    layer.values.residual = join(values, residual_length);
  } else {
    layer.keys.quantized = quantize(config_, config_.axis_key, full.keys);
    layer.values.quantized = quantize(config_, config_.axis_value, full.values);
    layer.keys.residual.reset();
    layer.values.residual.reset();
  }
  return full;
}

void QuantizedCache::grow(std::int64_t tokens) {
  length_ += tokens;
  for (Layer& layer : layers_) {
    const ModuleScope scope(context_, layer.module);
    { const GemmWorkspace workspace(context_); }  // see DynamicCache
    // Up to where all was quantised last, and what has come since.
    const std::int64_t since = layer.residual_length + tokens;
    std::int64_t rest = 0;
    if (since >= config_.residual_length && config_.residual_length > 0) rest = since % config_.residual_length;
    append(layer, tokens - rest);
    if (rest > 0) append(layer, rest);
  }
}

/// _quantize with a scale that is known.
Tensor Fp8Cache::quantize(const Shape& sizes) const {
  Tensor scaled;
  {
    const Tensor single = empty(context_, Op::to_copy, sizes, DType::float32);
    scaled = empty(context_, Op::div, sizes, DType::float32);
  }
  return empty(context_, Op::to_copy, sizes, DType::uint8, Role::kv_cache);
}

Tensor Fp8Cache::dequantize(const Tensor& quantized, DType dtype) const {
  Tensor scaled;
  {
    const Tensor single = empty(context_, Op::to_copy, quantized.sizes(), DType::float32);
    scaled = empty(context_, Op::mul, quantized.sizes(), DType::float32);
  }
  return to(scaled, dtype);
}

KvCache::States Fp8Cache::update(std::size_t layer, const Tensor& keys, const Tensor& values) {
  Layer& own = layers_[layer];
  const std::int64_t tokens = keys.size(2);
  if (layer == 0) length_ += tokens;
  if (own.keys.quantized) return append(own, tokens);
  own.module = context_.module;
  own.dtype = keys.dtype();
  const auto begin = [&](Side& side, const Tensor& states) {
    {  // (tensor.abs().amax().float() / fp8_max).clamp(min=tiny)
      Tensor most;
      {
        const Tensor magnitudes = empty(context_, Op::abs, states.sizes(), states.dtype());
        most = reduce(Op::maximum, magnitudes, {0, 1, 2, 3}, false, states.dtype());
      }
      most = to(most, DType::float32);
      most = empty(context_, Op::div, {}, DType::float32);
      side.scale = empty(context_, Op::clamp, {}, DType::float32, Role::kv_cache);
    }
    side.quantized = quantize(states.sizes());
  };
  begin(own.keys, keys);
  begin(own.values, values);
  return {keys, values};
}

KvCache::States Fp8Cache::append(Layer& layer, std::int64_t tokens) {
  const Tensor keys = layer.keys.quantized, values = layer.values.quantized;  // update's own names
  const Tensor new_keys = quantize(with_tokens(keys.sizes(), tokens));
  const Tensor new_values = quantize(with_tokens(values.sizes(), tokens));
  const auto join = [&](const Tensor& states) {
    return empty(context_, Op::cat, with_tokens(states.sizes(), states.size(2) + tokens), DType::uint8, Role::kv_cache);
  };
  layer.keys.quantized = join(keys);
  layer.values.quantized = join(values);
  States full;
  full.keys = dequantize(layer.keys.quantized, layer.dtype);
  full.values = dequantize(layer.values.quantized, layer.dtype);
  return full;
}

void Fp8Cache::grow(std::int64_t tokens) {
  length_ += tokens;
  for (Layer& layer : layers_) {
    const ModuleScope scope(context_, layer.module);
    { const GemmWorkspace workspace(context_); }  // see DynamicCache
    append(layer, tokens);
  }
}

}  // namespace oometer
