#include "advice/last_that_fits.h"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>

namespace oometer {
namespace {

constexpr std::int64_t kHighest = 1 << 20;

struct Found {
  std::optional<std::int64_t> number;
  int runs = 0;
};

/// Of a GPU of 1000, where the job needs what `total` says and `spared` of that can go.
template <typename Total>
Found search(const Total& total, std::int64_t spared = 0, std::int64_t least = 1, std::int64_t most = kHighest) {
  Found found;
  LastThatFits search(least, most);
  while (const std::optional<std::int64_t> number = search.next()) {
    REQUIRE(++found.runs < 60);
    CHECK((least <= *number && *number <= most));
    const std::int64_t headroom = 1000 - total(*number);
    search.learn(*number, Trial{Verdict::fits, headroom + spared >= 0, total(*number), headroom, std::nullopt});
  }
  found.number = search.found();
  return found;
}

}  // namespace

TEST_CASE("The last number that fits is found on a line in a few runs", "[advice]") {
  const Found found = search([](std::int64_t n) { return 100 + 7 * n; });
  CHECK(found.number == 128);
  CHECK(found.runs <= 4);
}

TEST_CASE("It is found wherever it lies, on lines, stairs and curves, and with memory that can be freed", "[advice]") {
  for (std::int64_t slope = 1; slope <= 1200; slope += 13)
    for (const std::int64_t base : {0, 500, 990, 1000, 1001})
      for (const std::int64_t spared : {0, 3, 40})
        for (int shape = 0; shape < 4; ++shape) {
          const auto total = [&](std::int64_t n) -> std::int64_t {
            const std::int64_t line = base + slope * n;
            if (shape == 1) return line / 64 * 64;
            if (shape == 2) return std::max<std::int64_t>(700, base / 2 + slope * n);
            if (shape == 3) return base + slope * n / 8 + n * n / 16;
            return line;
          };
          std::int64_t last = 0;
          while (last < kHighest && total(last + 1) <= 1000 + spared) ++last;
          INFO(slope << ", " << base << ", " << spared << ", " << shape);
          CHECK(search(total, spared).number == (last == 0 ? std::nullopt : std::optional(last)));
        }
}

TEST_CASE("Bounds are numbers like others", "[advice]") {
  const auto nothing = [](std::int64_t) { return std::int64_t{0}; };
  CHECK(search(nothing).number == kHighest);
  CHECK(search(nothing, 0, 576, 576).number == 576);
  CHECK(search(nothing, 0, 0, 511).number == 511);
  CHECK(search([](std::int64_t) { return std::int64_t{2000}; }).number == std::nullopt);
}

TEST_CASE("A run that is refused does not fit", "[advice]") {
  LastThatFits search(1, kHighest);
  while (const std::optional<std::int64_t> number = search.next())
    search.learn(*number, *number > 5 ? std::nullopt : std::optional(Trial{Verdict::fits, true, 1, 999, std::nullopt}));
  CHECK(search.found() == 5);
}

}  // namespace oometer
