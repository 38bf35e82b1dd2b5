#include "advice/checkpoint_plan.h"

#include <algorithm>
#include <deque>
#include <limits>

namespace oometer {

namespace {

/// Bytes of whole blocks up to each: sums[i] of [0, i).
std::vector<std::int64_t> prefix_sums(std::span<const ChainBlock> chain) {
  std::vector<std::int64_t> sums(chain.size() + 1, 0);
  for (std::size_t i = 0; i < chain.size(); ++i) sums[i + 1] = sums[i] + chain[i].input + chain[i].inside;
  return sums;
}

/// Neighbours that are kept are one.
void append(CheckpointPlan& plan, const ChainSegment& segment) {
  if (segment.recomputed) plan.recomputed += segment.end - segment.begin;
  if (!segment.recomputed && !plan.segments.empty() && !plan.segments.back().recomputed)
    plan.segments.back().end = segment.end;
  else
    plan.segments.push_back(segment);
}

}  // namespace

std::int64_t peak_of(std::span<const ChainBlock> chain, std::span<const ChainSegment> segments) {
  const std::vector<std::int64_t> sums = prefix_sums(chain);
  std::int64_t kept = 0, peak = 0;  // what is alive when backward comes to a segment's end
  for (const ChainSegment& segment : segments) {
    const std::int64_t whole = sums[segment.end] - sums[segment.begin];
    peak = std::max(peak, kept + whole);
    kept += segment.recomputed ? chain[segment.begin].input : whole;
  }
  return peak;
}

CheckpointPlan least_memory(std::span<const ChainBlock> chain) {
  const std::size_t n = chain.size();
  const std::vector<std::int64_t> sums = prefix_sums(chain);
  // peaks[p]: of the suffix that begins at p, all that is kept before it left out.
  //   peaks[p] = min over q > p of max(bytes of [p, q), input of p + peaks[q])
  std::vector<std::int64_t> peaks(n + 1, 0);
  std::vector<std::size_t> ends(n + 1, n);
  // Ends that may still be best, the nearest in front: farther ones have more bytes before them, so only those with
  // less after them are worth keeping.
  std::deque<std::size_t> candidates{n};
  for (std::size_t p = n; p-- > 0;) {
    const auto cost = [&](std::size_t q) { return std::max(sums[q] - sums[p], chain[p].input + peaks[q]); };
    // The bytes before an end grow with every step to the front, what comes after it does not change: a farther end
    // that is no better now never will be.
    while (candidates.size() > 1 && cost(candidates[candidates.size() - 2]) <= cost(candidates.back()))
      candidates.pop_back();
    ends[p] = candidates.back();
    peaks[p] = cost(candidates.back());
    while (!candidates.empty() && peaks[candidates.front()] >= peaks[p]) candidates.pop_front();
    candidates.push_front(p);
  }
  CheckpointPlan plan;
  plan.peak = peaks[0];
  // Backward begins with the last segment: it need not be run again.
  for (std::size_t p = 0; p < n; p = ends[p]) append(plan, {p, ends[p], ends[p] != n});
  return plan;
}

std::vector<CheckpointPlan> checkpoint_frontier(std::span<const ChainBlock> chain) {
  const std::size_t n = chain.size(), width = n + 1;
  const std::vector<std::int64_t> sums = prefix_sums(chain);
  // peaks[p * width + k]: of the suffix that begins at p, with at most k blocks recomputed. `ends`: of its first
  // segment; 0 where its first block is kept.
  std::vector<std::int64_t> peaks((n + 1) * width, 0);
  std::vector<std::size_t> ends((n + 1) * width, 0);
  for (std::size_t p = n; p-- > 0;) {
    const std::int64_t block = chain[p].input + chain[p].inside;
    for (std::size_t k = 0; k <= n; ++k) {
      std::int64_t& best = peaks[p * width + k];
      best = block + peaks[(p + 1) * width + k];
      for (std::size_t q = p + 1; q <= n && q - p <= k; ++q) {
        const std::int64_t peak = std::max(sums[q] - sums[p], chain[p].input + peaks[q * width + k - (q - p)]);
        if (peak >= best) continue;
        best = peak;
        ends[p * width + k] = q;
      }
    }
  }
  std::vector<CheckpointPlan> frontier;
  for (std::size_t k = 0; k <= n; ++k) {
    if (k > 0 && peaks[k] == peaks[k - 1]) continue;
    CheckpointPlan plan;
    plan.peak = peaks[k];
    for (std::size_t p = 0, left = k; p < n;) {
      const std::size_t end = ends[p * width + left];
      append(plan, {p, end == 0 ? p + 1 : end, end != 0});
      if (end != 0) left -= end - p;
      p = plan.segments.back().end;
    }
    frontier.push_back(std::move(plan));
  }
  return frontier;
}

}  // namespace oometer
