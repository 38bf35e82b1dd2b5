#include "ops/ops.h"
#include "tensor/node.h"

/// ATen/autocast_mode.cpp (2.15), cached_cast: parameters in float32 are cast once in a region, activations every time.
namespace oometer {

Tensor autocast_lower(const Tensor& x) {
  if (!x) return x;
  Context& context = x.context();
  if (!context.autocast.enabled || x.dtype() != DType::float32) {
    if (!context.autocast.enabled || !is_half(x.dtype()) || x.dtype() == context.autocast.dtype) return x;
    return to(x, context.autocast.dtype);
  }
  const bool cacheable = x->leaf_requires_grad && !x->grad_fn && !x->base;
  if (!cacheable) return to(x, context.autocast.dtype);
  if (!x->autocast_copy) {
    const Scoped<bool> grad_mode(context.grad_mode, true);  // so that a copy made without gradients serves with them
    x->autocast_copy = to(x, context.autocast.dtype);
    context.autocast.weights.push_back(x);
  } else if (!x->autocast_copy->grad_fn) {
    context.repetition_failed = true;  // of a block that was written, not executed (RepeatingRun::cache_weights)
  }
  return x->autocast_copy;
}

Tensor autocast_float32(const Tensor& x) {
  if (!x || !x.context().autocast.enabled || !is_half(x.dtype())) return x;
  return to(x, DType::float32);
}

}  // namespace oometer
