#include "advice/checkpoint_plan.h"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <limits>
#include <random>

namespace oometer {
namespace {

using Chain = std::vector<ChainBlock>;

Chain random_chain(std::mt19937& random, std::size_t longest) {
  Chain chain(1 + random() % longest);
  const unsigned most_input = random() % 2 ? 20 : 200, most_inside = random() % 2 ? 30 : 300;
  for (ChainBlock& block : chain) {
    block.input = random() % most_input;
    block.inside = random() % most_inside;
  }
  return chain;
}

/// The least peak of all ways to cut a chain into segments, the last of which is kept.
std::int64_t least_of_all_subsets(const Chain& chain) {
  std::int64_t least = std::numeric_limits<std::int64_t>::max();
  std::vector<ChainSegment> segments;  // here, for its memory: there are millions of subsets
  for (unsigned cuts = 0; cuts < 1U << (chain.size() - 1); ++cuts) {
    segments.clear();
    std::size_t begin = 0;
    for (std::size_t i = 1; i <= chain.size(); ++i) {
      if (i < chain.size() && !(cuts >> (i - 1) & 1U)) continue;
      segments.push_back({begin, i, i != chain.size()});
      begin = i;
    }
    least = std::min(least, peak_of(chain, segments));
  }
  return least;
}

/// least[k]: of all ways to keep blocks and recompute runs of them, k recomputed.
void try_all(const Chain& chain, std::size_t at, std::size_t recomputed, std::vector<ChainSegment>& segments,
             std::vector<std::int64_t>& least) {
  if (at == chain.size()) {
    least[recomputed] = std::min(least[recomputed], peak_of(chain, segments));
    return;
  }
  segments.push_back({at, at + 1, false});
  try_all(chain, at + 1, recomputed, segments, least);
  segments.pop_back();
  for (std::size_t end = at + 1; end <= chain.size(); ++end) {
    segments.push_back({at, end, true});
    try_all(chain, end, recomputed + end - at, segments, least);
    segments.pop_back();
  }
}

TEST_CASE("The least memory is the best of all subsets, of 1,000 random chains", "[advice]") {
  std::mt19937 random(20250217);
  for (int i = 0; i < 1000; ++i) {
    const Chain chain = random_chain(random, 16);
    const CheckpointPlan plan = least_memory(chain);
    CAPTURE(i, chain.size());
    REQUIRE(plan.peak == least_of_all_subsets(chain));
    REQUIRE(plan.peak == peak_of(chain, plan.segments));
    REQUIRE(plan.segments.front().begin == 0);
    REQUIRE(plan.segments.back().end == chain.size());
    REQUIRE_FALSE(plan.segments.back().recomputed);
  }
}

TEST_CASE("The frontier has the best of all plans for every number of recomputed blocks", "[advice]") {
  std::mt19937 random(7);
  for (int i = 0; i < 200; ++i) {
    const Chain chain = random_chain(random, 8);
    std::vector<std::int64_t> least(chain.size() + 1, std::numeric_limits<std::int64_t>::max());
    std::vector<ChainSegment> segments;
    try_all(chain, 0, 0, segments, least);
    for (std::size_t k = 1; k < least.size(); ++k) least[k] = std::min(least[k], least[k - 1]);
    const std::vector<CheckpointPlan> frontier = checkpoint_frontier(chain);
    CAPTURE(i, chain.size());
    std::size_t at = 0;
    for (std::size_t k = 0; k < least.size(); ++k) {
      while (at + 1 < frontier.size() && frontier[at + 1].recomputed <= k) ++at;
      REQUIRE(frontier[at].peak == least[k]);
      REQUIRE(peak_of(chain, frontier[at].segments) == least[k]);
    }
    REQUIRE(frontier.front().recomputed == 0);
    REQUIRE(frontier.back().peak == least_memory(chain).peak);
    for (std::size_t k = 1; k < frontier.size(); ++k) {
      REQUIRE(frontier[k].peak < frontier[k - 1].peak);
      REQUIRE(frontier[k].recomputed > frontier[k - 1].recomputed);
    }
  }
}

TEST_CASE("Fewer checkpoints are left when backward comes to the front: less than one before every block", "[advice]") {
  const Chain equal(64, {1, 10});
  std::vector<ChainSegment> every;
  for (std::size_t i = 0; i < equal.size(); ++i) every.push_back({i, i + 1, i + 1 != equal.size()});
  const CheckpointPlan plan = least_memory(equal);
  CHECK(peak_of(equal, every) == 63 + 11);
  CHECK(plan.peak < 63 + 11);
}

TEST_CASE("Chains at the edge: one block, blocks of nothing, a hundred thousand", "[advice]") {
  CHECK(least_memory(Chain{{3, 4}}).peak == 7);
  CHECK(least_memory(Chain{{3, 4}}).recomputed == 0);
  CHECK(least_memory(Chain(5)).peak == 0);
  CHECK(least_memory({}).segments.empty());
  CHECK(checkpoint_frontier(Chain(5)).size() == 1);
  std::mt19937 random(1);
  Chain chain(100'000);
  for (ChainBlock& block : chain)
    block = {1 + static_cast<std::int64_t>(random() % 9), static_cast<std::int64_t>(random() % 99)};
  const CheckpointPlan plan = least_memory(chain);
  CHECK(plan.peak == peak_of(chain, plan.segments));
}

}  // namespace
}  // namespace oometer
