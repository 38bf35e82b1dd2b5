#include <catch2/catch_test_macros.hpp>
#include <utility>

#include "models/muse_glimmer/config.h"

namespace oometer {
namespace {

// MuseGlimmerImageProcessor of transformers 5.23. Of a square both 17 x 17 and 18 x 18 tokens may have the same shape:
// the first one in a set of Python's is taken.
TEST_CASE("Muse Glimmer's images take as many tokens as its processor says", "[models][muse_glimmer]") {
  struct Row {
    std::int64_t height, width, rows, columns;
  };
  for (const Row& row : {Row{500, 500, 17, 17}, Row{777, 777, 28, 28}, Row{1000, 1000, 36, 36}, Row{4000, 4000, 64, 64},
                         Row{29, 29, 1, 1}, Row{27, 27, 1, 1}, Row{41, 41, 1, 1}, Row{85, 85, 4, 4}, Row{1, 1, 1, 1},
                         Row{1, 4000, 1, 143}, Row{4000, 1, 143, 1}, Row{300, 600, 11, 22}, Row{1500, 1500, 54, 54},
                         Row{333, 111, 12, 4}}) {
    CAPTURE(row.height, row.width);
    CHECK(muse_glimmer_tokens(row.height, row.width, {}) == std::pair{row.rows, row.columns});
  }
}

}  // namespace
}  // namespace oometer
