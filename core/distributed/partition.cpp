#include "distributed/partition.h"

#include <algorithm>

#include "rounding.h"

namespace oometer {

/// `nccl_start_alignment_factor`: partitions start at 4 bytes of two-byte elements.
constexpr std::int64_t kStartAlignment = 2;

std::int64_t FlatLayout::share(std::size_t index, std::int64_t rank) const {
  const std::int64_t begin = std::max(offsets[index], partition * rank);
  const std::int64_t end = std::min(offsets[index] + sizes[index], partition * (rank + 1));
  return std::max<std::int64_t>(end - begin, 0);
}

std::int64_t FlatLayout::touched(std::int64_t rank) const {
  std::int64_t total = 0;
  for (std::size_t i = 0; i < sizes.size(); ++i)
    if (touches(i, rank)) total += sizes[i];
  return total;
}

FlatLayout flat_layout(const std::vector<std::int64_t>& sizes, std::int64_t world, bool round_robin) {
  FlatLayout layout;
  layout.sizes = sizes;
  layout.world = world;
  layout.offsets.resize(sizes.size());
  const std::size_t turns = round_robin ? static_cast<std::size_t>(world) : 1;
  for (std::size_t turn = 0; turn < turns; ++turn)
    for (std::size_t i = turn; i < sizes.size(); i += turns) {
      layout.offsets[i] = layout.numel;
      layout.numel += sizes[i];
    }
  const std::int64_t alignment = kStartAlignment * world;
  layout.padded = round_up(layout.numel, alignment);
  layout.partition = layout.padded / world;
  return layout;
}

std::int64_t worst_rank(const std::vector<FlatLayout>& groups) {
  std::int64_t worst = 0, most = -1;
  const std::int64_t world = groups.empty() ? 1 : groups.front().world;
  for (std::int64_t rank = 0; rank < world; ++rank) {
    std::int64_t kept = 0, largest = 0;
    for (const FlatLayout& group : groups) {
      kept += group.touched(rank);
      for (std::size_t i = 0; i < group.sizes.size(); ++i) largest = std::max(largest, group.share(i, rank));
    }
    const std::int64_t bytes = 2 * kept + 8 * largest;
    if (bytes > most) {
      most = bytes;
      worst = rank;
    }
  }
  return worst;
}

std::vector<std::int64_t> ranks_to_try(std::int64_t world, std::int64_t likely) {
  constexpr std::int64_t kFew = 8;
  std::vector<std::int64_t> ranks{0};
  if (world <= kFew) {
    for (std::int64_t rank = 1; rank < world; ++rank) ranks.push_back(rank);
    return ranks;
  }
  if (likely != 0 && likely != world - 1) ranks.push_back(likely);
  ranks.push_back(world - 1);
  return ranks;
}

}  // namespace oometer
