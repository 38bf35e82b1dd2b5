#include "version.h"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

TEST_CASE("the version names the release and, in a checkout, the commit") {
  REQUIRE_THAT(std::string(oometer::version()), Catch::Matchers::Matches(R"(\d+\.\d+\.\d+(\+[0-9a-f]{7,})?)"));
}
