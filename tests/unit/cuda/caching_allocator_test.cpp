#include "cuda/caching_allocator.h"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <random>

using namespace oometer;

namespace {

using Block = CachingAllocator::Block;
using State = CachingAllocator::State;

AllocatorOptions expandable() {
  AllocatorOptions options;
  options.expandable_segments = true;
  return options;
}

AllocatorOptions limited(std::int64_t bytes, bool expandable_segments = false) { return {bytes, expandable_segments}; }

std::int64_t reserved_for(std::int64_t bytes, const AllocatorOptions& options = {}) {
  CachingAllocator allocator(options);
  allocator.malloc(bytes, 0);
  return allocator.stats().reserved;
}

std::int64_t allocated_for(std::int64_t bytes, const AllocatorOptions& options = {}) {
  CachingAllocator allocator(options);
  allocator.malloc(bytes, 0);
  return allocator.stats().allocated;
}

/// All blocks, by address.
std::vector<const Block*> blocks_of(const CachingAllocator& allocator) {
  std::vector<const Block*> blocks;
  allocator.for_each_block([&](const Block& block) { blocks.push_back(&block); });
  std::sort(blocks.begin(), blocks.end(), [](const Block* a, const Block* b) { return a->address < b->address; });
  return blocks;
}

/// What must hold of the blocks at any time.
void check(const CachingAllocator& allocator, bool expandable_segments) {
  std::int64_t allocated = 0, mapped = 0;
  const Block* before = nullptr;
  for (const Block* block : blocks_of(allocator)) {
    if (block->state != State::unmapped) mapped += block->size;
    if (block->state == State::allocated) allocated += block->size;
    if (before != nullptr) {
      const std::uint64_t end = before->address + static_cast<std::uint64_t>(before->size);
      REQUIRE(end <= block->address);
      if (!allocator.starts_segment(*block)) {
        REQUIRE(end == block->address);
        REQUIRE(before->next == block);
        REQUIRE(block->prev == before);
        // Neighbours that are alike have become one.
        const bool idle = block->state == State::free || block->state == State::unmapped;
        REQUIRE_FALSE((idle && before->state == block->state));
      }
    }
    before = block;
  }
  REQUIRE(allocated == allocator.stats().allocated);
  REQUIRE(mapped == allocator.stats().reserved);
  REQUIRE(allocator.stats().reserved % (expandable_segments ? CachingAllocator::kSmallSegment : kMiB) == 0);
}

}  // namespace

TEST_CASE("A request is rounded up to 512 bytes") {
  CHECK(allocated_for(1) == 512);
  CHECK(allocated_for(512) == 512);
  CHECK(allocated_for(513) == 1024);
  CHECK(allocated_for(kMiB - 1) == kMiB);
}

TEST_CASE("A segment's size follows from the request's") {
  CHECK(reserved_for(1) == 2 * kMiB);
  CHECK(reserved_for(kMiB) == 2 * kMiB);
  CHECK(reserved_for(kMiB + 1) == 20 * kMiB);
  CHECK(reserved_for(10 * kMiB - 512) == 20 * kMiB);
  CHECK(reserved_for(10 * kMiB) == 10 * kMiB);
  CHECK(reserved_for(10 * kMiB + 1) == 12 * kMiB);
  CHECK(reserved_for(4096 * kMiB) == 4096 * kMiB);
}

TEST_CASE("A large block is split only if more than 1 MiB is left") {
  CHECK(allocated_for(11 * kMiB) == 12 * kMiB);  // exactly 1 MiB of slack stays with the block
  CHECK(allocated_for(11 * kMiB - 512) == 11 * kMiB - 512);
  CHECK(allocated_for(19 * kMiB) == 20 * kMiB);  // a segment of 20 MiB
  CHECK(allocated_for(9 * kMiB) == 9 * kMiB);
}

TEST_CASE("A small block is split whenever a smallest block is left") {
  CachingAllocator allocator({});
  const Block* a = allocator.malloc(kMiB, 0);
  const Block* b = allocator.malloc(kMiB - 512, 0);
  const Block* c = allocator.malloc(100, 0);
  CHECK(allocator.stats().reserved == 2 * kMiB);
  CHECK(b->address == a->address + kMiB);
  CHECK(c->address == a->address + 2 * kMiB - 512);
  allocator.malloc(1, 0);
  CHECK(allocator.stats().reserved == 4 * kMiB);
}

TEST_CASE("The smallest free block that is large enough serves, the front of it") {
  CachingAllocator allocator({});
  Block* a = allocator.malloc(40 * kMiB, 0);
  Block* b = allocator.malloc(30 * kMiB, 0);
  const std::uint64_t address = b->address;
  allocator.free(a);
  allocator.free(b);
  const Block* c = allocator.malloc(25 * kMiB, 0);
  CHECK(c->address == address);
  CHECK(c->size == 25 * kMiB);
  CHECK(allocator.stats().reserved == 70 * kMiB);
}

TEST_CASE("Among equal blocks the oldest segment's serves") {
  CachingAllocator allocator({});
  Block* a = allocator.malloc(30 * kMiB, 0);
  Block* b = allocator.malloc(30 * kMiB, 0);
  const std::uint64_t address = a->address;
  allocator.free(b);
  allocator.free(a);
  CHECK(allocator.malloc(30 * kMiB, 0)->address == address);
}

TEST_CASE("Among equals the newest segment's block is taken where addresses go down") {
  for (const bool newest : {false, true}) {
    AllocatorOptions options;
    options.newest_of_equals = newest;
    CachingAllocator allocator(options);
    Block* first = allocator.malloc(30 * kMiB, 0);
    Block* second = allocator.malloc(30 * kMiB, 0);
    const std::uint64_t chosen = (newest ? second : first)->address;
    CHECK((second->address < first->address) == newest);
    allocator.free(first);
    allocator.free(second);
    CHECK(allocator.malloc(30 * kMiB, 0)->address == chosen);
    check(allocator, false);
  }
}

TEST_CASE("Free neighbours become one") {
  CachingAllocator allocator({});
  Block* a = allocator.malloc(512, 0);
  Block* b = allocator.malloc(512, 0);
  Block* c = allocator.malloc(512, 0);
  allocator.free(a);
  allocator.free(c);
  CHECK(blocks_of(allocator).size() == 3);
  allocator.free(b);
  CHECK(blocks_of(allocator).size() == 1);
  CHECK(allocator.malloc(kMiB, 0)->size == kMiB);
  CHECK(allocator.stats().reserved == 2 * kMiB);
}

TEST_CASE("Streams do not share free blocks") {
  CachingAllocator allocator({});
  allocator.free(allocator.malloc(30 * kMiB, 0));
  allocator.malloc(30 * kMiB, 1);
  CHECK(allocator.stats().reserved == 60 * kMiB);
}

TEST_CASE("A block that another stream used becomes free at the next malloc") {
  CachingAllocator allocator({});
  Block* a = allocator.malloc(30 * kMiB, 0);
  allocator.record_stream(a, 1);
  allocator.free(a);
  CHECK(allocator.stats().allocated == 0);
  CHECK(a->state == State::waiting);
  allocator.malloc(30 * kMiB, 0);
  CHECK(allocator.stats().reserved == 30 * kMiB);
}

TEST_CASE("record_stream with the block's own stream changes nothing") {
  CachingAllocator allocator({});
  Block* a = allocator.malloc(512, 3);
  allocator.record_stream(a, 3);
  allocator.free(a);
  CHECK(a->state == State::free);
}

TEST_CASE("empty_cache gives back whole free segments only") {
  CachingAllocator allocator({});
  Block* whole = allocator.malloc(30 * kMiB, 0);
  Block* part = allocator.malloc(5 * kMiB, 0);
  allocator.malloc(5 * kMiB, 0);
  Block* used = allocator.malloc(50 * kMiB, 0);
  allocator.record_stream(used, 1);
  allocator.free(whole);
  allocator.free(part);
  allocator.free(used);
  allocator.empty_cache();
  CHECK(allocator.stats().reserved == 20 * kMiB);
  CHECK(allocator.retries() == 0);
  check(allocator, false);
}

TEST_CASE("Where the device has no more, cached segments go back before memory is out") {
  CachingAllocator allocator(limited(100 * kMiB));
  allocator.free(allocator.malloc(60 * kMiB, 0));
  Block* a = allocator.malloc(70 * kMiB, 0);
  REQUIRE(a != nullptr);
  CHECK(allocator.retries() == 1);
  CHECK(allocator.stats().reserved == 70 * kMiB);
  CHECK(allocator.malloc(40 * kMiB, 0) == nullptr);
  CHECK(allocator.retries() == 2);
  CHECK(allocator.stats().reserved == 70 * kMiB);
  CHECK(allocator.malloc(30 * kMiB, 0) != nullptr);
}

TEST_CASE("Fragmented memory runs out where expandable segments would not") {
  const auto run = [](bool expandable_segments) {
    CachingAllocator allocator(limited(100 * kMiB, expandable_segments));
    Block* blocks[5];
    for (Block*& block : blocks) block = allocator.malloc(20 * kMiB, 0);
    allocator.free(blocks[0]);
    allocator.free(blocks[2]);
    return allocator.malloc(40 * kMiB, 0) != nullptr;
  };
  CHECK(run(false));  // segments of 20 MiB go back whole
  const auto split = [](bool expandable_segments) {
    CachingAllocator allocator(limited(80 * kMiB, expandable_segments));
    Block* a = allocator.malloc(80 * kMiB, 0);
    allocator.free(a);
    Block* b = allocator.malloc(20 * kMiB, 0);
    Block* c = allocator.malloc(20 * kMiB, 0);
    allocator.malloc(20 * kMiB, 0);
    allocator.free(b);
    (void)c;
    return allocator.malloc(40 * kMiB, 0) != nullptr;
  };
  CHECK_FALSE(split(false));
  CHECK(split(true));
}

TEST_CASE("Absurd sizes are refused") {
  for (const bool expandable_segments : {false, true}) {
    CachingAllocator allocator({std::numeric_limits<std::int64_t>::max(), expandable_segments});
    CHECK(allocator.malloc(std::numeric_limits<std::int64_t>::max(), 0) == nullptr);
    CHECK(allocator.malloc(std::int64_t{1} << 59, 0) != nullptr);
    CHECK(allocator.malloc(std::int64_t{1} << 60, 0) == nullptr);
    CHECK(allocator.malloc(512, 0) != nullptr);
  }
}

TEST_CASE("Expandable segments grow by pages") {
  CHECK(reserved_for(1, expandable()) == 2 * kMiB);
  CHECK(reserved_for(2 * kMiB, expandable()) == 20 * kMiB);
  CHECK(reserved_for(41 * kMiB, expandable()) == 60 * kMiB);
  CHECK(allocated_for(11 * kMiB, expandable()) == 11 * kMiB);  // split from 512 bytes on, of any size

  CachingAllocator allocator(expandable());
  const Block* a = allocator.malloc(15 * kMiB, 0);
  const Block* b = allocator.malloc(30 * kMiB, 0);  // 5 MiB are left: 25 more take two pages
  CHECK(b->address == a->address + 15 * kMiB);
  CHECK(allocator.stats().reserved == 60 * kMiB);
  check(allocator, true);
}

TEST_CASE("The block at the end of the mapped memory serves last") {
  CachingAllocator allocator(expandable());
  Block* a = allocator.malloc(18 * kMiB, 0);
  Block* b = allocator.malloc(kMiB + 512, 0);
  const std::uint64_t address = a->address;
  allocator.free(a);
  // At the end are 20 - 19 MiB - 512 bytes, enough for less than 1 MiB; the hole of 18 MiB is preferred for 2 MiB
  // anyway.
  allocator.free(b);
  Block* c = allocator.malloc(2 * kMiB, 0);
  CHECK(c->address == address);
  Block* d = allocator.malloc(12 * kMiB, 0);
  Block* e = allocator.malloc(2 * kMiB, 0);                                // leaves 4 MiB at the end
  allocator.free(d);                                                       // a hole of 12 MiB
  CHECK(allocator.malloc(3 * kMiB, 0)->address == c->address + 2 * kMiB);  // best fit would be the end
  CHECK(e->address > c->address);
  CHECK(allocator.stats().reserved == 20 * kMiB);
}

TEST_CASE("Expandable segments give back the pages inside a free block") {
  CachingAllocator allocator(expandable());
  Block* a = allocator.malloc(10 * kMiB, 0);
  Block* b = allocator.malloc(60 * kMiB, 0);  // [10, 70): pages [20, 60) are whole
  Block* c = allocator.malloc(10 * kMiB, 0);
  allocator.free(b);
  allocator.empty_cache();
  CHECK(allocator.stats().reserved == 40 * kMiB);
  check(allocator, true);
  const Block* d = allocator.malloc(50 * kMiB, 0);  // again into the hole, which is the lowest room
  CHECK(d->address == a->address + 10 * kMiB);
  CHECK(allocator.stats().reserved == 80 * kMiB);
  check(allocator, true);
  allocator.free(a);
  allocator.free(c);
}

TEST_CASE("A block that is taken and freed at once is told without taking it") {
  for (const bool expandable_segments : {false, true}) {
    CachingAllocator allocator({std::numeric_limits<std::int64_t>::max(), expandable_segments});
    CHECK(allocator.transient_block(5 * kMiB, 0) == 0);
    allocator.free(allocator.malloc(12 * kMiB, 0));
    for (const std::int64_t bytes : {5 * kMiB, 11 * kMiB, 12 * kMiB}) {
      Block* block = allocator.malloc(bytes, 0);
      const std::int64_t size = block->size;
      allocator.free(block);
      CHECK(allocator.transient_block(bytes, 0) == size);
    }
  }
}

TEST_CASE("Blocks stay consistent whatever happens") {
  std::mt19937 random(1);
  for (const bool expandable_segments : {false, true}) {
    for (const std::int64_t usable : {std::numeric_limits<std::int64_t>::max(), 600 * kMiB}) {
      CachingAllocator allocator({usable, expandable_segments});
      std::vector<Block*> live;
      for (int i = 0; i < 4000; ++i) {
        const std::uint_fast32_t action = random() % 100;
        if (action < 52 || live.empty()) {
          const std::int64_t bytes = 1 + static_cast<std::int64_t>(random() % (1u << (6 + random() % 19)));
          if (Block* block = allocator.malloc(bytes, static_cast<std::uint8_t>(random() % 3))) {
            REQUIRE(block->size >= bytes);
            live.push_back(block);
          }
        } else if (action < 97) {
          const std::size_t index = random() % live.size();
          std::swap(live[index], live.back());
          allocator.free(live.back());
          live.pop_back();
        } else if (action < 99) {
          allocator.record_stream(live[random() % live.size()], static_cast<std::uint8_t>(random() % 3));
        } else {
          allocator.empty_cache();
        }
        REQUIRE(allocator.stats().reserved <= usable);
        if (i % 50 == 0) check(allocator, expandable_segments);
      }
      for (Block* block : live) allocator.free(block);
      allocator.empty_cache();
      check(allocator, expandable_segments);
      CHECK(allocator.stats().reserved == 0);
    }
  }
}
