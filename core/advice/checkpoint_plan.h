#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

/// Which blocks of a chain to checkpoint: after "GPU Memory Usage Optimization for Backward Propagation in Deep Network
/// Training" (Hong et al., 2025), whose revised objective counts, while a segment is recomputed, only the checkpoints
/// that backward still needs.
namespace oometer {

/// One block of a chain that runs one on another's output. Bytes.
struct ChainBlock {
  std::int64_t input = 0;   ///< what it takes to run the block again: what a checkpoint before it keeps
  std::int64_t inside = 0;  ///< what the block keeps for backward beside that
};

/// Blocks [begin, end), which are either kept or run again together from the first one's input.
struct ChainSegment {
  std::size_t begin = 0, end = 0;
  bool recomputed = false;

  bool operator==(const ChainSegment&) const = default;
};

struct CheckpointPlan {
  std::int64_t peak = 0;               ///< most bytes of the chain alive at once
  std::size_t recomputed = 0;          ///< blocks whose forward runs twice: the extra compute
  std::vector<ChainSegment> segments;  ///< in order; neighbours that are kept are one
};

/// The most bytes alive when backward goes through the chain as the segments say: inputs of segments are kept until
/// backward has passed them, a segment's inside from when it is run again, or, where it is kept, from forward on.
std::int64_t peak_of(std::span<const ChainBlock> chain, std::span<const ChainSegment> segments);

/// The least peak, whatever it costs. O(n): of suffixes, from the last block to the first, the segment that begins a
/// suffix ends where its own bytes and the peak of what follows cross, and that place only moves towards the front.
CheckpointPlan least_memory(std::span<const ChainBlock> chain);

/// The whole frontier: for every number of recomputed blocks at which the least peak falls, that plan, from none
/// recomputed to `least_memory`'s peak. A dynamic programme over suffixes and recomputed blocks, O(n^3).
std::vector<CheckpointPlan> checkpoint_frontier(std::span<const ChainBlock> chain);

}  // namespace oometer
