#include "generation/mtla.h"

#include "ops/ops.h"
#include "rounding.h"

namespace oometer {

Tensor TemporalCache::entries(const Tensor& like, std::int64_t tokens, Op op) {
  return empty(context_, op, {like.size(0), divide_up(tokens, stride_), like.size(2)}, like.dtype(), Role::kv_cache);
}

/// torch.cat of both, then they take the names of those before.
void TemporalCache::extend(Layer& layer) {
  Tensor keys = entries(layer.states.keys, layer.tokens, Op::cat);
  Tensor values = entries(layer.states.values, layer.tokens, Op::cat);
  layer.states.keys = std::move(keys);
  layer.states.values = std::move(values);
}

KvCache::States TemporalCache::update(std::size_t layer, const Tensor& latents, const Tensor& positions) {
  if (layer >= layers_.size()) layers_.resize(layer + 1);
  Layer& own = layers_[layer];
  const std::int64_t tokens = latents.size(1), before = divide_up(own.tokens, stride_);
  own.tokens += tokens;
  if (before > 0) {  // one more token: added in place, or a new entry
    if (divide_up(own.tokens, stride_) > before) extend(own);
    return own.states;
  }
  own.module = context_.module;
  const auto chosen = [&](const Tensor& of_tokens) {
    if (tokens == 1) {
      context_.set_role(of_tokens, Role::kv_cache, own.module);
      return of_tokens;
    }
    const Tensor indices = empty(context_, Op::to_copy, {divide_up(tokens, stride_)}, DType::int64);
    return entries(of_tokens, tokens, Op::index);
  };
  own.states.keys = chosen(latents);
  own.states.values = chosen(positions);
  return own.states;
}

void TemporalCache::grow(std::int64_t tokens) {
  for (Layer& layer : layers_) {
    const ModuleScope scope(context_, layer.module);
    { const GemmWorkspace workspace(context_); }
    layer.tokens += tokens;
    extend(layer);
  }
}

}  // namespace oometer
