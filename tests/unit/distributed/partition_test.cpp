#include "distributed/partition.h"

#include <catch2/catch_test_macros.hpp>

namespace oometer {
namespace {

TEST_CASE("A group is padded to two elements a rank and cut into equal partitions", "[distributed]") {
  const FlatLayout layout = flat_layout({10, 3}, 4);
  CHECK(layout.numel == 13);
  CHECK(layout.padded == 16);
  CHECK(layout.partition == 4);
  CHECK(layout.offsets == std::vector<std::int64_t>{0, 10});
  CHECK(flat_layout({16}, 4).padded == 16);
  CHECK(flat_layout({17}, 8).padded == 32);
  CHECK(flat_layout({5}, 1).padded == 6);
}

TEST_CASE("A parameter is shared by the ranks whose partitions it lies in", "[distributed]") {
  const FlatLayout layout = flat_layout({10, 3}, 4);
  CHECK(layout.first_rank(0) == 0);
  CHECK(layout.last_rank(0) == 2);
  CHECK(layout.first_rank(1) == 2);
  CHECK(layout.last_rank(1) == 3);
  CHECK(layout.share(0, 0) == 4);
  CHECK(layout.share(0, 2) == 2);
  CHECK(layout.share(0, 3) == 0);
  CHECK(layout.share(1, 2) == 2);
  CHECK(layout.share(1, 3) == 1);
  for (std::size_t index : {0U, 1U}) {
    std::int64_t total = 0;
    for (std::int64_t rank = 0; rank < 4; ++rank) {
      total += layout.share(index, rank);
      CHECK(layout.touches(index, rank) == (layout.share(index, rank) > 0));
    }
    CHECK(total == layout.sizes[index]);
  }
}

TEST_CASE("Gradients that straddle a partition's ends are kept whole", "[distributed]") {
  const FlatLayout layout = flat_layout({10, 3}, 4);
  CHECK(layout.touched(0) == 10);
  CHECK(layout.touched(2) == 13);
  CHECK(layout.touched(3) == 3);
  // Rank 0: 10 whole, 4 of them in float64; rank 2: 13, but two pieces of 2.
  CHECK(worst_rank({layout}) == 0);
  CHECK(worst_rank({flat_layout({4, 3, 3, 2}, 2)}) == 0);  // 2 * 7 + 8 * 4; rank 1: 2 * 8 + 8 * 3
  CHECK(worst_rank({flat_layout({2, 3, 3, 4}, 2)}) == 1);
  CHECK(worst_rank({flat_layout({8, 8}, 2)}) == 0);
  CHECK(worst_rank({}) == 0);
}

TEST_CASE("Of a few ranks all are tried, of many the ends and the likely worst", "[distributed]") {
  using Ranks = std::vector<std::int64_t>;
  CHECK(ranks_to_try(3, 1) == Ranks{0, 1, 2});
  CHECK(ranks_to_try(16, 5) == Ranks{0, 5, 15});
  CHECK(ranks_to_try(16, 0) == Ranks{0, 15});
  CHECK(ranks_to_try(16, 15) == Ranks{0, 15});
}

TEST_CASE("A rank may own nothing but padding", "[distributed]") {
  const FlatLayout layout = flat_layout({3}, 8);
  CHECK(layout.partition == 2);
  CHECK(layout.touched(1) == 3);
  CHECK(layout.touched(2) == 0);
}

TEST_CASE("Round-robin deals the parameters out to the ranks", "[distributed]") {
  const FlatLayout layout = flat_layout({1, 2, 4, 8, 16}, 2, true);
  CHECK(layout.offsets == std::vector<std::int64_t>{0, 21, 1, 23, 5});
  CHECK(layout.numel == 31);
  CHECK(layout.padded == 32);
}

}  // namespace
}  // namespace oometer
