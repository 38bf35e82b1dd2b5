#include "ops/detection.h"

#include <catch2/catch_test_macros.hpp>
#include <cstdint>
#include <vector>

#include "../process.h"
#include "ops/host_index.h"
#include "ops/ops.h"

namespace oometer {
namespace {

TEST_CASE("an index in host memory is copied for its use", "[ops]") {
  Process p;
  const Tensor boxes = p.input({2, 13, 4}, DType::float32, true);
  p.mark();
  const Tensor found = index_from_host(boxes, 6, HostRowsAndColumns{});
  CHECK(p.allocations() == std::vector<std::int64_t>{48, 48, 96});
  CHECK(found.sizes() == Shape{6, 4});
}

TEST_CASE("a weighted cross entropy copies what lies across, and keeps its log-probabilities", "[ops]") {
  Process p;
  const Tensor logits = p.input({2, 13, 6}, DType::float32, true), target = p.input({2, 13}, DType::int64, false),
               weight = p.input({6}, DType::float32, false);
  p.mark();
  const Tensor loss = weighted_cross_entropy(transpose(logits, 1, 2), target, weight);
  CHECK(p.allocations() == std::vector<std::int64_t>{624, 624, 4, 4});
}

TEST_CASE("the diagonal of a square is a copy", "[ops]") {
  Process p;
  const Tensor x = p.input({6, 6}, DType::float32, true);
  p.mark();
  const Tensor diagonal_of_x = diagonal(x);
  CHECK(p.allocations() == std::vector<std::int64_t>{24});
}

}  // namespace
}  // namespace oometer
