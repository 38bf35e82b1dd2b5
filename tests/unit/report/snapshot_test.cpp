#include "report/snapshot.h"

#include <catch2/catch_test_macros.hpp>

#include "logs.h"
#include "report/pickle_writer.h"

using namespace oometer;

namespace {

std::size_t count(const std::string& text, const std::string& word) {
  std::size_t found = 0;
  for (std::size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) ++found;
  return found;
}

}  // namespace

TEST_CASE("Python's pickle, byte for byte") {
  PickleWriter out;
  out.begin_dict();
  out.member("a", std::int64_t{1});
  out.member("b", std::int64_t{-2});
  out.member("c", std::int64_t{1} << 40);
  out.member("d", true);
  out.member("e", "a");
  out.value("f");
  out.begin_list();
  out.pair(0, 255);
  out.value(0.5);
  out.end_list();
  out.end_dict();
  using namespace std::string_literals;
  const std::string expected =
      "\x80\x02}("s
      "X\x01\0\0\0ar\0\0\0\0K\x01"s
      "X\x01\0\0\0"s
      "br\x01\0\0\0J\xfe\xff\xff\xff"s
      "X\x01\0\0\0"s
      "cr\x02\0\0\0\x8a\x08\0\0\0\0\0\x01\0\0"s
      "X\x01\0\0\0"s
      "dr\x03\0\0\0\x88"s
      "X\x01\0\0\0"s
      "er\x04\0\0\0j\0\0\0\0"s
      "X\x01\0\0\0"s
      "fr\x05\0\0\0](K\0K\xff\x86G\x3f\xe0\0\0\0\0\0\0eu."s;
  CHECK(out.take() == expected);
}

TEST_CASE("A snapshot is written of any log, within any limit") {
  for (unsigned seed = 0; seed < 5; ++seed) {
    const Log log = random_log(seed);
    for (const bool expandable_segments : {false, true}) {
      for (const std::int64_t usable : {std::numeric_limits<std::int64_t>::max(), 50 * kMiB}) {
        const std::string snapshot = memory_snapshot(log, {usable, expandable_segments});
        CHECK(snapshot.substr(0, 2) == "\x80\x02");
        CHECK(snapshot.back() == '.');
        CHECK(count(snapshot, "free_completed") <= 1);  // texts are written once
        CHECK(count(snapshot, "language.layers.2.mlp") == 1);
        CHECK(count(snapshot, "oom") == (usable == 50 * kMiB));
      }
    }
  }
}
