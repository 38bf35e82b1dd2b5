#include "ops/bloom.h"

#include <catch2/catch_test_macros.hpp>
#include <vector>

#include "process.h"

namespace oometer {
namespace {

TEST_CASE("BLOOM's GELU keeps its input alone, and no step of it", "[ops]") {
  Process p;
  const Tensor x = p.input({4, 256}, DType::bfloat16, true);
  p.mark();
  const Tensor y = bloom_gelu(x);
  CHECK(p.allocations() == std::vector<std::int64_t>(9, 2048));
  CHECK(p.saved(Role::input) == std::vector<std::int64_t>{2048});
  CHECK(p.saved(Role::tensor).empty());
}

TEST_CASE("baddbmm keeps both of its matrices and not what it adds to", "[ops]") {
  Process p;
  const Tensor alibi = p.input({6, 1, 64}, DType::bfloat16, false), query = p.input({6, 64, 32}, DType::bfloat16, true),
               key = p.input({6, 32, 64}, DType::bfloat16, true);
  p.mark();
  const Tensor scores = baddbmm(alibi, query, key);
  CHECK(scores.nbytes() == 6 * 64 * 64 * 2);
  CHECK(p.saved(Role::input) == std::vector<std::int64_t>{6 * 64 * 32 * 2, 6 * 32 * 64 * 2});
}

}  // namespace
}  // namespace oometer
