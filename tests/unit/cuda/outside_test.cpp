#include "cuda/outside.h"

#include <catch2/catch_test_macros.hpp>

#include "job/catalogue.h"

namespace oometer {
namespace {

TEST_CASE("What lies outside the allocator is bounded and has its sources", "[cuda]") {
  const Behaviours behaviours = resolve_behaviours(Runtime{});
  for (const Gpu& gpu : gpu_catalogue()) {
    for (const std::int64_t world : {1, 2, 8}) {
      const Outside outside = outside_allocator(gpu, behaviours, world, world == 2);
      INFO(gpu.id << " x " << world);
      CHECK(outside.low > 0);
      CHECK(outside.low <= outside.total());
      CHECK(outside.total() <= outside.high);
      CHECK((outside.nccl == 0) == (world == 1));
      CHECK_FALSE(outside.notes.empty());
    }
  }
}

TEST_CASE("The T4's context is the measured one", "[cuda]") {
  const Outside outside = outside_allocator(*find_gpu("t4"), resolve_behaviours(Runtime{}), 1, false);
  CHECK(outside.context == 1127 << 17);  // 140.875 MiB
}

}  // namespace
}  // namespace oometer
