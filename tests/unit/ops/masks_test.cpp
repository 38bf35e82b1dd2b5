#include "ops/masks.h"

#include <catch2/catch_test_macros.hpp>

#include "../process.h"
#include "ops/experts.h"

/// What masks, scans and triangular systems allocate and save, as PyTorch 2.15 does on an A100.
namespace oometer {
namespace {

TEST_CASE("cumsum copies what is of another type or order, and one row takes CUB's scratch memory", "[ops]") {
  Process p;
  const Tensor mask = p.input({3, 256}, DType::boolean);
  p.mark();
  const Tensor counted = cumsum(mask, 1, DType::int64);
  CHECK(p.allocations() == Bytes{3 * 256 * 8, 3 * 256 * 8});
  const Tensor rows = p.input({3, 256}, DType::float32, true);
  p.mark();
  const Tensor sums = cumsum(transpose(rows, 0, 1), 0, DType::float32);
  CHECK(p.allocations() == Bytes{3 * 256 * 4, 3 * 256 * 4});
  CHECK(p.saved(Role::input).empty());
  p.mark();
  const Tensor one_row = cumsum(p.input({4}, DType::int64), 0, DType::int64);
  CHECK(p.allocations().size() == 3);  // the input, the sums, the scan's descriptors
}

TEST_CASE("pad copies even where there is nothing to pad, and its backward cuts off again", "[ops]") {
  Process p;
  const Tensor x = p.input({2, 96, 8}, DType::float32, true);
  p.mark();
  const Tensor same = pad(x, 1, 0), longer = pad(x, 1, 32);
  CHECK(p.allocations() == Bytes{2 * 96 * 8 * 4, 2 * 128 * 8 * 4});
  CHECK(longer.size(1) == 128);
  CHECK(p.saved(Role::input).empty());
}

TEST_CASE("where keeps its condition, tril nothing, abs its input", "[ops]") {
  Process p;
  const Tensor condition = p.input({8, 8}, DType::boolean), x = p.input({8, 8}, DType::float32, true);
  p.mark();
  const Tensor chosen = where(condition, x, x);
  CHECK(p.allocations() == Bytes{256});
  const Tensor below = triangle(x);
  CHECK(p.saved(Role::input) == Bytes{64});
  const Tensor positive = abs(x);
  CHECK(p.saved(Role::input) == Bytes{64, 256});
}

TEST_CASE("Many triangular systems are handed over by two lists of pointers, few large ones one by one", "[ops]") {
  Process p;
  const auto solve = [&](std::int64_t matrices, std::int64_t n) {
    const Tensor a = p.input({matrices, n, n}, DType::float32, true),
                 b = p.input({matrices, n, 4}, DType::float32, true);
    p.mark();
    const Tensor x = solve_triangular(a, b);
    CHECK(x.strides() == Shape{4 * n, 1, n});
    return p.allocations();
  };
  CHECK(solve(12, 64) == Bytes{12 * 64 * 4 * 4, 96, 96, 8519680});
  CHECK(solve(8, 64) == Bytes{8 * 64 * 4 * 4, 8519680});
  CHECK(solve(8, 32) == Bytes{8 * 32 * 4 * 4, 64, 64, 8519680});
}

TEST_CASE("A copy into a view that has no gradient becomes its base's history", "[ops]") {
  Process p;
  const Tensor base = p.input({4, 8}, DType::float32), source = p.input({8}, DType::float32, true);
  p.mark();
  const Tensor part = copy_in_place(select(base, 0, 1), source);
  CHECK(p.allocations().empty());
  CHECK(base.requires_grad());
  CHECK(part.requires_grad());
}

}  // namespace
}  // namespace oometer
