#include "train/training_cache.h"

#include "ops/ops.h"

namespace oometer {

KvCache::States TrainingCache::update(std::size_t layer, const Tensor& keys, const Tensor& values) {
  if (layer == 0) length_ += keys.size(2);
  // DynamicLayer.update: torch.cat([self.keys, key_states], dim=-2), of which the first is empty.
  States states;
  states.keys = cat({keys}, 2);
  states.values = cat({values}, 2);
  states_.push_back(states.keys);
  states_.push_back(states.values);
  return states;
}

}  // namespace oometer
