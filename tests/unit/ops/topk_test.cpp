#include "ops/topk.h"

#include <catch2/catch_test_macros.hpp>
#include <cstdint>
#include <vector>

#include "../process.h"

namespace oometer {
namespace {

TEST_CASE("topk of long rows searches in blocks and sorts what it found", "[ops]") {
  Process p;  // a context with its log, as an A100 has them
  const Tensor x = p.input({14, 37632}, DType::float32, false);
  p.mark();
  const TopK few = topk_of_rows(x, 3000);
  CHECK(p.allocations() ==
        std::vector<std::int64_t>{168000, 336000, 56, 112, 112, 265216, 14336, 2072, 2072, 1279, 1279});
  p.mark();
  const TopK many = topk_of_rows(x, 9408);
  CHECK(p.allocations() == std::vector<std::int64_t>{526848, 1053696, 56, 112, 112, 265216, 14336, 2072, 2072, 1279,
                                                     1279, 1053696, 526848, 1053696, 1053696, 526848, 1633279, 38399,
                                                     1053696});
}

}  // namespace
}  // namespace oometer
