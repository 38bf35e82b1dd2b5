#include "ops/xielu.h"

#include <catch2/catch_test_macros.hpp>
#include <vector>

#include "process.h"

namespace oometer {
namespace {

TEST_CASE("softplus keeps its input, expm1 its result", "[ops]") {
  Process p;
  const Tensor x = p.input({4, 256}, DType::bfloat16, true);
  p.mark();
  const Tensor y = softplus(x);
  CHECK(p.allocations() == std::vector<std::int64_t>{2048});
  CHECK(p.saved(Role::input) == std::vector<std::int64_t>{2048});
  p.mark();
  const Tensor z = expm1(x);
  CHECK(p.allocations() == std::vector<std::int64_t>{2048});
  CHECK(p.saved(Role::tensor) == std::vector<std::int64_t>{2048});
}

}  // namespace
}  // namespace oometer
