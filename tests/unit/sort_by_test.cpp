#include "sort_by.h"

#include <catch2/catch_test_macros.hpp>
#include <string>

namespace oometer {

TEST_CASE("Items are sorted by their key, equal ones keep their order", "[sort_by]") {
  std::vector<std::string> words = {"dd", "a", "ccc", "b", "", "ee"};
  sort_by(words, [](const std::string& word) { return word.size(); });
  CHECK(words == std::vector<std::string>{"", "a", "b", "dd", "ee", "ccc"});
  sort_by(words, [](const std::string& word) { return -static_cast<std::int64_t>(word.size()); });
  CHECK(words == std::vector<std::string>{"ccc", "dd", "ee", "a", "b", ""});
}

TEST_CASE("Nothing, and many equal keys, are sorted", "[sort_by]") {
  std::vector<std::uint32_t> items;
  sort_by(items, [](std::uint32_t item) { return item; });
  CHECK(items.empty());
  for (std::uint32_t i = 0; i < 1000; ++i) items.push_back(i);
  sort_by(items, [](std::uint32_t item) { return item % 3; });
  for (std::size_t i = 1; i < items.size(); ++i) {
    const bool in_order = items[i - 1] % 3 != items[i] % 3 ? items[i - 1] % 3 < items[i] % 3 : items[i - 1] < items[i];
    REQUIRE(in_order);
  }
}

}  // namespace oometer
