#include "train/training_cache.h"

#include <catch2/catch_test_macros.hpp>
#include <memory>

#include "process.h"

namespace oometer {
namespace {

TEST_CASE("A cache in training copies keys and values, with gradients, and holds them", "[train]") {
  Process p;
  auto cache = std::make_unique<TrainingCache>();
  {
    const Tensor keys = p.input({1, 2, 8, 64}, DType::bfloat16, true), values = p.input({1, 2, 8, 64});
    p.mark();
    const KvCache::States states = cache->update(0, keys, values);
    CHECK(p.allocations() == Bytes{2048, 2048});
    CHECK(states.keys.requires_grad());
    CHECK_FALSE(states.values.requires_grad());
    CHECK(cache->length() == 8);
    CHECK(cache->mask_length(8, 0) == 16);
  }
  const std::int64_t held = p.context.allocated_bytes();
  cache.reset();
  CHECK(p.context.allocated_bytes() <= held - 4096);
}

}  // namespace
}  // namespace oometer
