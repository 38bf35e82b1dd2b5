#include "tensor/shape.h"

#include <catch2/catch_test_macros.hpp>

namespace oometer {
namespace {

TEST_CASE("Shapes index from both ends", "[tensor]") {
  Shape shape{2, 3, 5};
  CHECK(shape.ndim() == 3);
  CHECK(shape[0] == 2);
  CHECK(shape[-1] == 5);
  CHECK(shape[-3] == 2);
  shape.insert(1, 7);
  CHECK(shape == Shape{2, 7, 3, 5});
  shape.push_back(1);
  CHECK(shape == Shape{2, 7, 3, 5, 1});
  CHECK_FALSE(Shape{2} == Shape{2, 1});
}

TEST_CASE("numel of no dimensions is one, of an empty dimension none", "[tensor]") {
  CHECK(numel({}) == 1);
  CHECK(numel({4, 0, 9}) == 0);
  CHECK(numel({2, 3, 5}) == 30);
}

TEST_CASE("Contiguous strides are row-major; empty dimensions count as one", "[tensor]") {
  CHECK(contiguous_strides({2, 3, 5}) == Shape{15, 5, 1});
  CHECK(contiguous_strides({2, 0, 5}) == Shape{5, 5, 1});
  CHECK(contiguous_strides({}) == Shape{});
}

TEST_CASE("Broadcasting aligns the last dimensions", "[tensor]") {
  CHECK(broadcast({4, 1, 3}, {5, 1}) == Shape{4, 5, 3});
  CHECK(broadcast({3}, {2, 1}) == Shape{2, 3});
  CHECK(broadcast({}, {2, 3}) == Shape{2, 3});
  CHECK(broadcast({2, 3}, {2, 3}) == Shape{2, 3});
}

TEST_CASE("Products saturate at the limit instead of wrapping", "[tensor]") {
  constexpr std::int64_t kBig = std::int64_t{1} << 40;
  CHECK(checked_product(kBig, 1 << 10) == std::int64_t{1} << 50);
  CHECK(checked_product(kBig, kBig) == kSizeLimit);
  CHECK(checked_product(kSizeLimit, kSizeLimit) == kSizeLimit);
  CHECK(checked_product(kSizeLimit, 0) == 0);
  CHECK(numel({kBig, kBig, kBig, kBig}) == kSizeLimit);
}

}  // namespace
}  // namespace oometer
