#include "ops/float32_rms_norm.h"

#include <catch2/catch_test_macros.hpp>
#include <vector>

#include "process.h"

namespace oometer {
namespace {

TEST_CASE("Automodel's norm copies its input and its weight to float32, and keeps them as they were", "[ops]") {
  Process p;
  const Tensor x = p.input({4, 256}, DType::bfloat16, true);
  const Tensor weight = p.input({256}, DType::bfloat16, true);
  p.mark();
  const Tensor y = float32_rms_norm(x, weight);
  CHECK(p.allocations() == std::vector<std::int64_t>{4096, 1024, 4096, 16, 2048});
  CHECK(p.saved(Role::input) == std::vector<std::int64_t>{512, 2048});
}

}  // namespace
}  // namespace oometer
