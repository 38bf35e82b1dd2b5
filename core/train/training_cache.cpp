#include "train/training_cache.h"

#include "ops/ops.h"

namespace oometer {

KvCache::States TrainingCache::update(std::size_t layer, const Tensor& keys, const Tensor& values) {
  if (layer == 0) length_ += keys.size(2);
  // DynamicLayer.update: torch.cat([self.keys, key_states], dim=-2), of which the first is empty, and of the keys' type,
  // as that of the values is: under autocast rotated keys are float32 (lazy_initialization).
  Shape none = values.sizes();
  none[2] = 0;
  States states;
  states.keys = cat({keys}, 2);
  states.values = cat({empty(keys.context(), Op::empty, none, keys.dtype()), values}, 2);
  states_.push_back(states.keys);
  states_.push_back(states.values);
  return states;
}

}  // namespace oometer
