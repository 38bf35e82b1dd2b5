#include "trace/work.h"

#include <catch2/catch_test_macros.hpp>

namespace oometer {

TEST_CASE("What is repeated within what is repeated counts as often as both", "[trace][work]") {
  WorkLog log;
  const auto run = [&] { log.works.emplace_back(); };
  run();
  const WorkMark step = log.mark();
  run();
  const WorkMark block = log.mark();
  run();
  run();
  log.repeat({block, log.mark()}, 3);  // four blocks
  run();
  const WorkMark end = log.mark();
  log.repeat({step, end});  // two steps
  CHECK(log.times({{}, log.mark()}) == std::vector<std::int64_t>{1, 2, 8, 8, 2});
  CHECK(log.times({step, end}) == std::vector<std::int64_t>{0, 1, 4, 4, 1});
  CHECK(log.times({end, log.mark()}) == std::vector<std::int64_t>{0, 1, 4, 4, 1});
  log.repeat({end, end});
  log.repeat({step, end}, 0);
  CHECK(log.repeats.size() == 2);
}

}  // namespace oometer
